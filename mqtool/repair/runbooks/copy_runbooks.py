"""Runbooks for copies of a store and for messages taken out of it: moving, diverging, converting, drills."""

from collections.abc import Callable, Iterable
from glob import escape
from pathlib import Path

from mqtool.choices import Compat
from mqtool.commands import command, give_to_owner
from mqtool.convert.dledger import convert
from mqtool.diff import LogDifference, compare
from mqtool.errors import CorruptionError, StoreError, UsageError
from mqtool.repair.backup import backup, restore
from mqtool.repair.changes import Redact, Truncate
from mqtool.repair.from_findings import RepairProposal
from mqtool.repair.runbooks.model import (
    Advice,
    Case,
    Detection,
    Made,
    NewDirectory,
    Proposal,
    Runbook,
    required_copies,
    run_again,
)
from mqtool.replay.originals import Source
from mqtool.replay.to_store import ReplayRequest, replay
from mqtool.store.lock import holder_words, lock_holder
from mqtool.store.log.selection import Selection
from mqtool.store.store import open_store

_BACKUP_SUFFIX = ".backup"
_IDS_SUFFIX = ".ids.jsonl"


def _movable(case: Case) -> Detection:
    holder = lock_holder(case.root)
    if holder is not None:
        return Detection(
            False,
            (
                (
                    f"{holder_words(holder)} has the store open and would continue to write to the old directory; "
                    "stop it first"
                ),
            ),
        )
    hosts: dict[str, int] = {}
    for batch in case.store.batches(["store_host"]):
        for host in batch.column(0).to_pylist():
            hosts[host] = hosts.get(host, 0) + 1
    facts = [
        f"{count} message(s) have ids that contain {host}: queryMsgById asks that host"
        for host, count in sorted(hosts.items())
    ]
    keys = ("storePathRootDir", "storePathCommitLog", "storePathConsumeQueue", "storePathIndex", "brokerIP1")
    values = case.store.config.values
    facts += [f"configuration: {key}={values[key]}" for key in keys if key in values]
    return Detection(True, (*facts, f"verify: {case.verification.state.value}"))


def _copy(case: Case, _found: Detection) -> NewDirectory:
    def make(target: Path) -> Made:
        kept = target.with_name(target.name + _BACKUP_SUFFIX)
        saved = backup(case.root, kept, case.request.config)
        restored = restore(kept, target, saved.snapshot.name, config=case.store.config)
        facts = (
            f"backup: {kept}, snapshot {saved.snapshot.name}, {len(saved.snapshot.files)} files",
            f"every file has the SHA-256 that it had; verify: {restored.verify}",
            *_compared(case, target),
        )
        return Made(facts, put_in_place=give_to_owner(target, case.root))

    return NewDirectory(f"a verified copy of {case.root}, restored from a backup next to it", make)


def _compared(case: Case, new: Path) -> Iterable[str]:
    config = case.store.config
    with open_store(case.root, config) as a, open_store(new, config.for_copy(new)) as b:
        difference = compare(a, b)
    same = difference.log is not None and difference.log.equal and not difference.queues and not difference.offsets
    if not same:
        raise StoreError(
            "the copy differs from the store; a broker may have written meanwhile; run mqtool diff to see how", new
        )
    compared = "everything that can be compared" if difference.not_compared else "log, queues and consumer offsets"
    yield f"mqtool diff: no difference in {compared}"
    yield from (f"not compared except for the SHA-256: {words}" for words in difference.not_compared)


def _difference(case: Case) -> LogDifference:
    other = required_copies(case)[0]
    with open_store(other, case.store.config.for_copy(other)) as copy:
        difference = compare(case.store, copy, ("log",)).log
    assert difference is not None
    if difference.common is None:
        raise UsageError(f"{other}: has no range of the log in common with {case.root}: nothing to compare")
    return difference


def _diverged(case: Case) -> Detection:
    log = _difference(case)
    at, end = log.diverges_at, log.a[1] if log.a else 0
    if at is None or at >= end:
        return Detection(False, (f"the store agrees with the other up to its end at {end}",))
    facts = [f"both agree up to physical offset {at}; this store ends at {end}"]
    damage = _damage(log, at)
    if damage is not None:
        return Detection(False, (*facts, damage))
    facts.append(f"messages after it that only this store has: {log.messages_a + _alone(log)}")
    return Detection(True, tuple(facts))


def _damage(log: LogDifference, at: int) -> str | None:
    """Returns in words the damage because of which two logs differ at a physical offset; None if there is none.

    Logs diverge where both hold valid records, or where one ends after a valid record. Cutting a valid log because its
    copy is damaged would lose messages.
    """
    region = next((part for part in log.regions if part.start == at), None)
    if region is not None:
        if region.a.damaged_bytes:
            return f"this store is damaged there: {region.a.detail}; run RB-05"
        if region.b.damaged_bytes:
            return f"the other store is damaged there, but this one is not: {region.b.detail}; repair the other one"
        return None
    gap = next((part for part in log.alone if part.start == at and part.kind == "gap"), None)
    if gap is not None and gap.side == "a":
        return f"the other store has no file for physical offsets {at} to {gap.end}; repair the other one"
    if gap is not None:
        return f"this store has no file for physical offsets {at} to {gap.end}; run RB-05"
    tail = log.tail_b
    if tail is not None and tail.start == at and tail.kind not in ("clean", "stale"):
        return (
            f"the log of the other store does not end cleanly there: {tail.detail}; let its broker start and stop, or "
            "recover a copy of it (mqtool plan recover), and compare with that"
        )
    return None


def _alone(log: LogDifference) -> int:
    return sum(part.messages for part in log.alone if part.side == "a" and part.kind == "end")


def _cut_to_common(case: Case, _found: Detection) -> RepairProposal:
    at = _difference(case).diverges_at
    assert at is not None
    return RepairProposal((Truncate(at),))


def _is_ledger(case: Case) -> Detection:
    evidence = tuple(f"DLedger log: {path.name}" for path in case.store.layout.dledger_dirs)
    return Detection(bool(evidence), evidence)


def _leave_ledger(case: Case, _found: Detection) -> NewDirectory:
    def make(target: Path) -> Made:
        with open_store(case.root, case.request.config) as store:
            result = convert(store, target)
        facts = (
            f"records: {result.records}, physical offsets {result.start} to {result.end}",
            f"queues: {result.rebuilt.queues}, units: {result.rebuilt.units}, keys: {result.rebuilt.keys}",
            f"ranges of the old log without a valid record: {result.damage.count}",
            *(f"not copied: {name}" for name in result.left_behind),
        )
        return Made(facts, result.is_complete)

    return NewDirectory(f"an ordinary store with the messages of {case.root}", make)


def _selected(case: Case) -> Detection:
    topics = set(case.request.topics)
    counts: dict[str, int] = {}
    for batch in case.store.batches(["topic"]):
        for topic in batch.column(0).to_pylist():
            if topic in topics or not topics:
                counts[topic] = counts.get(topic, 0) + 1
    facts = tuple(f"{topic}: {count} message(s) in the log" for topic, count in sorted(counts.items()))
    return Detection(bool(counts), facts)


def _replay(case: Case, detection: Detection) -> Proposal:
    if case.request.topics:
        return NewDirectory(
            f"a new store with the messages of {', '.join(case.request.topics)} of {case.root}", _replay_again(case)
        )
    store, topic = case.request.opened(case.root), detection.evidence[0].partition(": ")[0]
    return Advice(
        (
            "choose complete topics with --topic, or messages with --time, --key, --tag or --grep of mqtool dump",
            "edit the lines of dump; mqtool replay stores them again, with new ids",
            "or keep them as a table with mqtool export",
        ),
        (
            run_again("RB-16", case.root, case.request, "--topic", topic),
            command("dump", store, "--format", "jsonl"),
        ),
    )


def _replay_again(case: Case) -> Callable[[Path], Made]:
    def make(target: Path) -> Made:
        if target.exists():
            raise UsageError(f"{target}: exists; name a new directory")
        given = case.request.config
        config = Path(given) if isinstance(given, (str, Path)) else None
        selection = Selection.of(topics=[escape(topic) for topic in case.request.topics])
        ids = target.with_name(target.name + _IDS_SUFFIX)
        result = replay(
            ReplayRequest(
                Source(case.root, selection, keep_times=True, config=config),
                target,
                ids,
                config=config,
                compat=Compat(case.broker),
            )
        )
        facts = (
            *(f"{topic}: {count} message(s)" for topic, count in sorted(result.topics.items())),
            f"old and new ids: {ids}",
            f"rejected: {result.refused}",
            *(f"at physical offset {at}: {words}" for at, words in result.reasons),
            f"damaged ranges of the log: {len(result.skipped.damage)}",
        )
        return Made(facts, result.is_complete)

    return make


def _one_message(case: Case) -> Detection:
    at = case.request.at
    if at is None:
        raise UsageError("this runbook removes one message: give the physical offset of its record with --at")
    try:
        record = case.store.commit_log.record_at(at)
    except CorruptionError as error:
        raise UsageError(f"--at {at}: {error}") from error
    place = f"{record.topic.decode('utf-8', 'replace')}/{record.queue_id}@{record.queue_offset}"
    if not record.body.strip(b" "):
        return Detection(False, (f"{place}: its body is already blank",))
    return Detection(True, (f"{place}: body of {len(record.body)} bytes at physical offset {at}",))


def _blank(case: Case, _found: Detection) -> Proposal:
    assert case.request.at is not None
    return RepairProposal((Redact((case.request.at,)),))


COPY_RUNBOOKS = (
    Runbook("RB-12", _movable, _copy),
    Runbook("RB-14", _diverged, _cut_to_common),
    Runbook("RB-15", _is_ledger, _leave_ledger),
    Runbook("RB-16", _selected, _replay),
    Runbook("RB-21", _one_message, _blank),
    Runbook("RB-22", _movable, _copy),
)
