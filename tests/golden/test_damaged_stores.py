"""Each of the 462 damaged stores, opened once: what is read, what `verify` finds, and what its next start is.

The truth is the list of records that a broker wrote into the undamaged base, the bytes that the damage left of them,
the findings that the edits of a case call for, and what the real stores 4.9.7 and 5.5.0 did when they were started.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import mqtool
from mqtool.store import Message
from mqtool.verify import State, Verification
from tests.golden.agreement import STARTS, differences, predicted_in
from tests.golden.verify_expected import UNKNOWN, expected, lost_addresses
from tests.support.both_ways import verify_both_ways
from tests.support.damage import CASES, DamageCase, base_config, base_messages, changed_messages, damage_answers
from tests.support.stores import fixture
from tests.support.tables import in_parts

# Damage to a single field of a record that a broker still serves: the message is there, but it is not what was written.
FIELD_ONLY = (
    "flip-queue-id",
    "flip-queue-id-negative",
    "flip-queue-offset",
    "flip-rollback",
    "flip-compressed",
    "flip-born-timestamp",
    "flip-store-timestamp",
    "flip-topic",
    "flip-key",
    "flip-property-separator",
    "timestamp-backwards",
    "timestamp-future",
    "timestamp-zero-first",
    "timestamp-old-first",
)


Differences = dict[str, Any]
"""What is not as it must be, by what was asked; empty if all is right."""


@cache
def base_records(base: str) -> dict[int, bytes]:
    """Every record of an undamaged base: physical offset to bytes, by the broker's own list."""
    with mqtool.open(fixture(f"damage/bases/{base}/store")) as store:
        return {line["phy"]: store.commit_log.read(line["phy"], line["size"]) for line in base_messages(base)}


def wrong_records(case: DamageCase, root: Path) -> Differences:
    """Reading finds every record that is still there, and takes nothing else for one; no configuration is given."""
    records = base_records(case.base)
    with mqtool.open(root) as store:
        found = {item.physical_offset for item in store.messages() if isinstance(item, Message)}
        intact = {offset for offset, data in records.items() if store.commit_log.read(offset, len(data)) == data}
    return _differences({"intact, not read": (intact - found, set()), "invented": (found - records.keys(), set())})


KEY_OF_5 = ("lint-unknown-key", "note")
"""The configuration of the bases of 4.9.7 has two keys that only 5.x reads."""


def wrong_findings(case: DamageCase, root: Path) -> Differences:
    """`verify` finds what the edits call for, counts exactly what is lost, and calls nothing intact damaged."""
    with mqtool.open(root, base_config(case.base)) as store:
        found = verify_both_ways(store)
    changed, start = changed_messages(case, root), found.next_start
    unknown = {check.area.value for check in found.checks if check.state is State.UNKNOWN}
    return _differences(
        {
            "findings": (
                {(finding.code, finding.severity.value) for finding in found.findings} - {KEY_OF_5},
                expected(case),
            ),
            "checks that cannot run": (unknown, UNKNOWN.get(case.kind, set())),
            "lost": (lost_addresses(found), _lost(case, root, changed)),
            "lost already": (
                start.losses.gone if start and start.losses else found.losses.messages,
                found.losses.messages,
            ),
            "intact, called damaged": (_blamed(case, changed, found), set()),
        }
    )


def _lost(case: DamageCase, root: Path, changed: list[dict[str, Any]]) -> set[tuple[str, int, int]]:
    """Topic, queue and offset of the messages that are neither there as they were written nor confirmed by a unit."""
    if case.kind in ("cq-ahead", "cq-ahead-far"):  # a unit too many says that there was a message
        orders = [m["offset"] for m in base_messages(case.base) if (m["topic"], m["queue"]) == ("Orders", 0)]
        return {("Orders", 0, 1 + max(orders))}
    if case.kind == "commitlog-and-queues-deleted":  # nothing is left that could prove what was there
        return set()
    if case.kind.startswith(("segment-missing-first", "segment-name")) or case.kind in FIELD_ONLY:
        return set()
    gone = [
        message
        for message in changed
        if message["offset"] >= 0 and not (_is_served_whole(case, message) or _is_confirmed(case, root, message))
    ]
    return {(message["topic"], message["queue"], message["offset"]) for message in gone}


def _is_served_whole(case: DamageCase, message: dict[str, Any]) -> bool:
    """The page hole of one base wipes the keys of a record, but neither its lengths nor its body."""
    return case.id == "tail-page-hole@4.9.7-crash" and message["phy"] < 131072 + 4096


def _is_confirmed(case: DamageCase, root: Path, message: dict[str, Any]) -> bool:
    """Only fields have changed that the message's unit states too: size, magic code and physical offset."""
    written = base_records(case.base)[message["phy"]]
    with mqtool.open(root) as store:
        left = store.commit_log.read(message["phy"], len(written))
    stated = {*range(8), *range(28, 36)}
    return len(left) == len(written) and {at for at in range(len(left)) if left[at] != written[at]} <= stated


def _blamed(case: DamageCase, changed: list[dict[str, Any]], found: Verification) -> set[int]:
    """Physical offsets of intact records that are in a damaged range, or at which a finding is placed."""
    offsets = {message["phy"] for message in changed}
    sizes = {m["phy"]: m["size"] for m in base_messages(case.base) if m["phy"] not in offsets}
    ranges = [(part.start, part.end) for part in found.losses.ranges]
    blamed = {finding.physical_offset for finding in found.findings if finding.code.startswith("log-")}
    return {
        at for at, size in sizes.items() if at in blamed or any(start < at + size and end > at for start, end in ranges)
    }


def wrong_starts(case: DamageCase, root: Path) -> Differences:
    """A predicted start is what the real store did, in every field of the recorded answer."""
    different: Differences = {}
    for name, releases in STARTS.items():
        answer = recorded(*releases).get(case.id)
        if answer is None:
            continue
        found = differences(predicted_in(root, case, releases[0]), answer)
        different |= {f"start by {name}: {field}": pair for field, pair in found.items()}
    return different


recorded = cache(damage_answers)


def _differences(pairs: dict[str, tuple[Any, Any]]) -> Differences:
    return {asked: pair for asked, pair in pairs.items() if pair[0] != pair[1]}


@in_parts("case", CASES.values(), size=12)
def test_a_damaged_store_is_read_verified_and_predicted(case: DamageCase, damaged: Callable[[str], Path]) -> None:
    root = damaged(case.id)
    wrong = wrong_starts(case, root)
    if case.kind != "store-empty":
        wrong |= wrong_records(case, root) | wrong_findings(case, root)
    assert wrong == {}


def test_every_recorded_start_is_compared() -> None:
    assert [len(recorded(*releases)) for releases in STARTS.values()] == [231] * 3
    assert set().union(*(recorded(*releases) for releases in STARTS.values())) == set(CASES)
