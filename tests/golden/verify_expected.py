"""What each kind of damage must be called, worked out from what its edits do; not from what verify prints.

A line is `kind: codes`. A code may be followed by its severity where that is not the usual one: `:w` warning, `:n` note;
and by where it applies: `@4` or `@5` releases, `@clean` or `@crash` endings. Every case of a crashed base has
`abort-present` besides, unless the case takes the abort file away or its lock is held: then a broker is running.
"""

from mqtool.verify import Verification
from tests.support.damage import DamageCase

# A lost end of the log shows in all that is derived from it: units and index entries point behind the end, and the
# checkpoint knows a time, in 5.5 an offset too, that no record has any more.
_LOST_END = "queue-ahead-of-log index-ahead-of-log:w checkpoint-ahead:w"

TABLE = f"""
none:
abort-added: abort-present:w
abort-removed: log-segment-extra:n
tail-torn: log-torn-tail:w {_LOST_END}
tail-torn-header: log-torn-tail:w {_LOST_END}
tail-zeroed: {_LOST_END}
tail-zeroed-five: {_LOST_END}
tail-zeroed-segment: {_LOST_END}
tail-garbage: log-garbage-tail:w
tail-fake-header: log-torn-tail:w
tail-stale: log-stale-tail:w
tail-blank:
flip-body: log-bad-body
flip-crc: log-bad-body
flip-magic: log-bad-header
flip-size: log-bad-lengths
flip-size-larger: log-bad-lengths
flip-queue-id: log-wrong-queue
flip-queue-id-negative: log-wrong-queue log-bad-field
flip-queue-offset: log-wrong-offset
flip-physical-offset: log-bad-offset
flip-physical-offset-huge: log-bad-offset
flip-host-flag: log-bad-lengths
flip-rollback: log-wrong-flags
flip-compressed: log-bad-compression
flip-born-timestamp: log-bad-field
flip-store-timestamp: log-bad-field
flip-body-length: log-bad-lengths
flip-topic: log-wrong-queue
flip-topic-length: log-bad-lengths
flip-key: index-foreign-entry
flip-property-separator: index-foreign-entry queue-wrong-tags
flip-property-length: log-bad-lengths
size-zero: log-bad-lengths
size-negative: log-bad-lengths
size-huge: log-bad-lengths
size-over-end: log-bad-lengths
size-to-end: log-bad-lengths
timestamp-backwards: log-bad-time:w
timestamp-future: log-bad-time:w
timestamp-zero-first: log-bad-field
timestamp-old-first: log-bad-time:w
recent-flip-body: log-bad-body
recent-flip-magic: log-bad-header
third-last-flip-magic: log-bad-header
first-record-flip-magic: log-bad-header
old-flip-body: log-bad-body
old-flip-magic: log-bad-header
old-zero-segment: log-zeros
blank-wrong-size: log-bad-blank
blank-zeroed: log-no-blank
blank-old-zeroed: log-no-blank
blank-early: log-bad-header
segment-missing-first:
segment-missing-first-three:
segment-missing-middle: log-segment-missing
segment-missing-recent: log-segment-missing
segment-missing-last: log-segment-missing index-ahead-of-log:w checkpoint-ahead:w
segment-extra-zero: log-segment-extra:n
segment-preallocated-missing:
segment-extra-far: log-segment-extra:w
segment-extra-short: log-segment-size
segment-extra-empty: log-segment-size@4 log-segment-size:w@5
segment-empty-middle: log-segment-size log-segment-missing
segment-short-last: log-segment-size
segment-long: log-segment-size
segment-name-text: log-stray-file
segment-name-text-small: log-stray-file
segment-name-text-empty: log-stray-file@4 log-stray-file:w@5
segment-name-odd: log-segment-name
segment-name-short: log-segment-name
segment-copy-last: log-stale-tail:w
segment-subdirectory: log-stray-file@4 log-stray-file:n@5
commitlog-deleted: log-missing queue-ahead-of-log
commitlog-and-queues-deleted: log-missing config-offset-orphan:w
cq-odd-length: queue-file-size
cq-half-length: queue-file-size
cq-file-missing-first: queue-file-missing
cq-file-missing-middle: queue-file-missing
cq-queue-missing: queue-missing config-offset-orphan:w
cq-topic-missing: queue-missing config-offset-orphan:w
cq-all-missing: queue-missing:w@clean queue-missing@crash config-offset-orphan:w
cq-all-and-index-missing: queue-missing:w@clean queue-missing@crash config-offset-orphan:w index-missing
cq-garbage-last: queue-bad-unit@clean queue-bad-unit:w@crash
cq-negative-last: queue-bad-unit@clean queue-bad-unit:w@crash
cq-garbage-middle: queue-bad-unit@clean queue-bad-unit:w@crash
cq-behind: queue-missing-units@clean queue-missing-units:w@crash
cq-behind-all: queue-missing-units@clean queue-missing-units:w@crash
cq-ahead: queue-ahead-of-log
cq-ahead-far: queue-ahead-of-log
cq-hole: queue-hole@clean queue-hole:w@crash
cq-hole-old: queue-hole
cq-wrong-tag: queue-wrong-tags
cq-wrong-size: queue-wrong-size
cq-wrong-target: queue-foreign-unit
cq-extra-file: queue-file-extra:w
cq-extra-file-empty: queue-file-size@4 queue-file-size:w@5
cq-extra-name: queue-stray-file
cq-queue-name: queue-stray-file:n
cq-topic-is-file: queue-stray-file:n
cq-unknown-topic: queue-foreign-unit config-topic-missing:w
index-missing: index-missing
index-last-missing: index-missing-entry
index-header-garbage: index-header
index-header-garbage-first: index-header
index-zero: index-missing-entry
index-slot-garbage: index-slot
index-slot-loop: index-chain
index-count-beyond: index-header
index-count-negative: index-header
index-newer-than-checkpoint: checkpoint-behind:w
index-all-unsafe: checkpoint-behind:w
index-short: index-file-size index-missing-entry
index-empty: index-file-size index-missing-entry
index-name-text: index-stray-file:n
index-subdirectory: index-stray-file
index-first-lost: index-missing-entry
checkpoint-missing: checkpoint-missing:w
checkpoint-zero: checkpoint-zero:w
checkpoint-ahead: checkpoint-ahead:w
checkpoint-behind: checkpoint-behind:w
checkpoint-physic-zero:
checkpoint-logics-phy-zero:
checkpoint-logics-phy-ahead: checkpoint-ahead:w
checkpoint-negative: checkpoint-bad-value:w checkpoint-behind:w
checkpoint-short: checkpoint-size:w checkpoint-behind:w
checkpoint-empty: checkpoint-size:w checkpoint-zero:w
checkpoint-directory: checkpoint-not-file
abort-directory: abort-bad
lock-held:
lock-missing:
repair-abort-and-physic: abort-present:w checkpoint-zero:w queue-missing-units:w config-offset-ahead
repair-abort-without-checkpoint: abort-present:w checkpoint-missing:w queue-missing:w config-offset-orphan:w
config-none:
config-topics-missing: config-missing:w
config-topics-torn: config-unreadable:w
config-topics-torn-both: config-unreadable
config-topics-empty: config-unreadable:w
config-topics-gone: config-missing
config-topics-zeros: config-unreadable:w
config-topics-lack-audit: config-topic-missing:w
config-offsets-missing: config-missing:w
config-offsets-torn-both: config-unreadable
config-offsets-ahead: config-offset-ahead config-offset-negative config-offset-orphan:w
config-groups-torn: config-unreadable:w
config-all-missing:
"""

ONE_BY_ONE = {
    # the page begins inside the properties of a record, whose lengths and body stay right: only its keys are wrong
    "tail-page-hole@4.9.7-crash": "log-zeros index-foreign-entry",
    "tail-page-hole@4.9.7-clean": "log-bad-lengths",
    "tail-page-hole@5.5.0-clean": "log-bad-lengths",
    "tail-page-hole@5.5.0-crash": "log-bad-lengths",
    "old-zero-page@4.9.7-clean": "log-bad-lengths",
    "old-zero-page@4.9.7-crash": "log-bad-lengths",
    "old-zero-page@5.5.0-clean": "log-bad-lengths",
    "old-zero-page@5.5.0-crash": "log-bad-lengths",
    # the last file by name is the one with data in a store that was stopped, the one made ahead after a crash
    "segment-empty-last@4.9.7-clean": "log-segment-size log-segment-missing index-ahead-of-log:w checkpoint-ahead:w",
    "segment-empty-last@5.5.0-clean": "log-segment-size:w log-segment-missing index-ahead-of-log:w checkpoint-ahead:w",
    "segment-empty-last@4.9.7-crash": "log-segment-size",
    "segment-empty-last@5.5.0-crash": "log-segment-size:w",
    # 4.9 scans the last file's messages again after a crash, 5.5 begins later
    "cq-file-missing-last@4.9.7-clean": "queue-missing-units config-offset-ahead",
    "cq-file-missing-last@5.5.0-clean": "queue-missing-units config-offset-ahead",
    "cq-file-missing-last@4.9.7-crash": "queue-missing-units:w config-offset-ahead",
    "cq-file-missing-last@5.5.0-crash": "queue-missing-units config-offset-ahead",
}

UNKNOWN = {"config-all-missing": {"config"}}
"""Checks that cannot run."""

_ERRORS_BY_DEFAULT = {"": "error", "w": "warning", "n": "note"}
_BY_KIND = dict(line.split(":", 1) for line in TABLE.strip().splitlines())


def expected(case: DamageCase) -> set[tuple[str, str]]:
    """The codes and severities that a case must have."""
    words = ONE_BY_ONE.get(case.id, _BY_KIND.get(case.kind))
    assert words is not None, f"no expectation for {case.id}"
    version, ending = case.base.split("-")
    found = set()
    for word in words.split():
        code, _, where = word.partition("@")
        if where and where not in (version[0], ending):
            continue
        name, _, severity = code.partition(":")
        found.add((name, _ERRORS_BY_DEFAULT[severity]))
    if ending == "crash" and case.kind != "abort-removed" and not case.locked:
        found.add(("abort-present", "warning"))
    return found


def lost_addresses(found: Verification) -> set[tuple[str, int, int]]:
    """Topic, queue and offset of each message that a verification counts as lost."""
    return {
        (loss.topic, loss.queue_id, offset)
        for loss in found.losses.queues
        for first, last in loss.offsets
        for offset in range(first, last + 1)
    }
