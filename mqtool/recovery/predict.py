"""`predict`: a broker's start on a store, as data, without changing a byte."""

import contextlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from mqtool.errors import LayoutError, NotAStoreError
from mqtool.formats import file_names
from mqtool.formats.release import V4_9, V5_5, V5_5_1, Release, release_of
from mqtool.formats.topics import TopicQueue
from mqtool.recovery import losses
from mqtool.recovery.action_log import Action
from mqtool.recovery.dledger_log import LedgerStart
from mqtool.recovery.index import read_header, summary_of
from mqtool.recovery.mapped_files import QueueFile, SimulatedFile, list_entries
from mqtool.recovery.outcome import (
    GIVEN,
    Effort,
    FileChanges,
    FilePlan,
    IndexSummary,
    Outcome,
    Plan,
    QueueOutcome,
    QueuePlan,
)
from mqtool.recovery.proof import prove
from mqtool.recovery.reading import STATES, Delivery, QueueReading, Reader
from mqtool.recovery.settings import settings_of
from mqtool.recovery.start import Start, without_uncompacted
from mqtool.recovery.state import AnyQueue
from mqtool.store import open_readable, open_store
from mqtool.store.config.broker_config import ConfigSource, load
from mqtool.store.files import read_file, unreadable
from mqtool.store.known_losses import NONE, KnownLosses, LostOffsets, known_losses, offsets_by_queue
from mqtool.store.lock import lock_holder
from mqtool.store.version import Version
from mqtool.store.waiting.held_back import waiting_among

_CACHED_BYTES_PER_MINUTE = 60 * (500 << 20)
_DISK_BYTES_PER_MINUTE = 60 * (80 << 20)
_DISPATCHED_PER_MINUTE = 60 * 150_000


def file_changes(start: Start) -> FileChanges:
    """Returns which files are deleted, created and changed."""
    present = _presence(start)
    before = {path: path.is_file() for path in present}
    root = start.settings.root

    def names(paths: list[Path]) -> tuple[str, ...]:
        return tuple(sorted(path.relative_to(root).as_posix() for path in paths if path.is_relative_to(root)))

    return FileChanges(
        deleted=names([path for path, is_present in present.items() if before[path] and not is_present]),
        created=names([path for path, is_present in present.items() if not before[path] and is_present]),
        changed=names([path for path in _changed(start) if path.is_file() and present.get(path, True)]),
    )


def _presence(start: Start) -> dict[Path, bool]:
    """Returns whether each file that a step creates or deletes exists in the end."""
    present: dict[Path, bool] = {}
    for step in start.actions.steps:
        if step.action is Action.DELETE:
            present[step.path] = False
        elif step.action is Action.CREATE:
            present[step.path] = True
        elif step.action is Action.WRITE and not step.path.exists():
            present.setdefault(step.path, True)
    return present


def _changed(start: Start) -> set[Path]:
    changed = {step.path for step in start.actions.steps if step.action in (Action.GROW, Action.WRITE)}
    changed |= {file.path for file in start.state.index.files if file.path is not None and file.added}
    for queue in start.state.queues.values():
        contents = [queue_file.content for queue_file in queue.files.files]
        changed |= {content.path for content in contents if content.path.is_file() and content.is_changed}
    backup = start.settings.root / file_names.ABORT_BACKUP
    written = read_file(start.abort) if start.had_abort else b""
    if backup in changed and backup.is_file() and read_file(backup) == written:
        changed.discard(backup)
    return changed


def index_after(start: Start) -> tuple[IndexSummary, ...]:
    """Returns all files in index/ in the order of their names, including those that the broker ignores."""
    known = {file.path: file for file in start.state.index.files if file.path is not None}
    deleted = {path for path, is_present in _presence(start).items() if not is_present}
    summaries: list[tuple[str, IndexSummary]] = []
    for entry in list_entries(start.settings.root / file_names.INDEX) or []:
        if entry.problem or entry.path in deleted:
            continue
        file = known.get(entry.path)
        summaries.append((entry.name, file.summary if file else summary_of(entry.name, read_header(entry))))
    # the clock's name sorts after the names of older files, and before text
    newest = max((name for name, _ in summaries if name.isdigit()), default="") + ":"
    new = [(newest, file.summary) for file in start.state.index.files if file.path is None]
    return tuple(summary for _, summary in sorted(summaries + new, key=lambda item: item[0]))


def predict(
    store_dir: "str | Path",
    broker: str | None = None,
    config: ConfigSource = None,
    *,
    whole_broker: bool = True,
    read_log: bool = True,
    heap_bytes: int | None = None,
    checked: Mapping[int, np.ndarray] | None = None,
) -> Outcome:
    """Predicts what a broker would do if it were started on a store now.

    Args:
        store_dir: root of the store.
        broker: the release, such as "4.9", "5.5" or "5.5.1"; by default the one that wrote the store.
        config: the broker's own keys; without them sizes come from the files.
        whole_broker: load the tables in config/ too, as a broker does.
        read_log: read the whole log to report which messages are lost; otherwise `lost` and `readable` are None.
        heap_bytes: the broker's heap; 4.9 may allocate one array of any size that a record states.
        checked: what the caller has just read: by physical offset of a segment, the physical offsets of some of its
            records, int64, ascending. Every record up to the last of them passes the broker's test. The scan after a
            clean stop then begins at the last one whose predecessors are all in their queues; `effort` counts what was
            scanned.

    Raises:
        UsageError: the release's start is not known.
        NotAStoreError: it is not a directory of a store.
        UnsupportedFormatError: it is not a file-based store.
        UnreadableError: the system cannot read a file or directory, so the start is unknown.
        StoreError: a file cannot be read.
    """
    root = Path(store_dir)
    try:
        keys = load(config)
        if broker is not None:
            release, evidence = release_of(broker), GIVEN
        else:
            version = detect_version(root, keys)
            release, evidence = version.release, version.assumption
        settings = settings_of(root, release, keys, whole_broker=whole_broker, heap=heap_bytes)
        kind = Start if settings.dledger is None else LedgerStart
        lock = root / file_names.LOCK
        start = kind(settings, lock_holder(root), checked)
        if lock.exists() and not os.access(lock, os.R_OK):
            start.actions.log_undecided(
                "whether a process holds the lock file, which cannot be read: if so, the broker exits with -1"
            )
        start.run()
        outcome = replace(outcome_of(start, read_log=read_log), release_evidence=evidence)
        if not outcome.by_start:
            return outcome
        with open_readable(root, keys) as store:
            return replace(outcome, waiting=waiting_among(store, outcome.by_start))
    except OSError as error:
        raise unreadable("cannot be read", error, store_dir) from error


def detect_version(root: Path, config: ConfigSource) -> Version:
    """Returns the release whose start is assumed if none is given, and the evidence for it."""
    try:
        with open_store(root, config) as store:
            return store.version
    except (LayoutError, NotAStoreError):
        return Version(None, "unknown from the store")


def other_start(outcome: Outcome, version: Version, start: Callable[[Release, bool], Outcome]) -> Outcome | None:
    """Returns the start of another release, if the evidence disagrees or that start has another outcome.

    Of a store of 5.x, these are the releases that may have written it, and 5.5.1; of one of 4.9, it is 5.5. `start`
    predicts the start of a release, and may read the log for it.
    """
    if version.contrary:
        return start(V4_9 if version.release > V4_9 else V5_5, True)
    for other in dict.fromkeys((*version.releases, V5_5_1)) if version.release > V4_9 else (V5_5,):
        if other == version.release or (other == V5_5_1 and not outcome.has_negative_blank):
            continue  # a start of 5.5.1 has another outcome only where there is such a BLANK
        quick = start(other, False)
        if (quick.exit, quick.hung, quick.after_start) != (outcome.exit, outcome.hung, outcome.after_start):
            return start(other, True)
    return None


def outcome_of(start: Start, *, read_log: bool = True) -> Outcome:
    """Returns the outcome of a start that has been run."""
    state, ending, actions = start.state, start.result, start.actions
    known = _known(start)
    readings, result = _consumers(start, known) if ending.runs and read_log else ({}, losses.UNKNOWN)
    lost = [LostOffsets(*queue, offsets) for queue, offsets in (result.lost or {}).items()]
    return Outcome(
        release=str(start.settings.release),
        clean_stop=state.clean_stop,
        exit=ending.exit,
        refusal=ending.refusal,
        hung=ending.hung,
        after_start=(state.log.min_offset, state.log.max_offset) if ending.started else None,
        queues=_queues(start) if ending.runs else None,
        lost=_named(result.lost),
        gone=_named(result.gone),
        by_start=_named(result.by_start),
        unserved=_named(result.unserved),
        readable=result.readable,
        repeated=_named(result.repeated),
        index_after=index_after(start),
        index_lost=state.index.lost(state.log.min_offset, state.log.max_offset) if ending.runs and read_log else None,
        abort_after=_abort_after(start),
        files=file_changes(start),
        why=tuple(actions.why),
        accepted=tuple(actions.accepted),
        undecided=tuple(actions.undecided),
        effort=_effort(start),
        readings=readings,
        plan=_plan(start) if ending.loaded else None,
        evidence=start.settings.evidence,
        has_negative_blank=state.scanned.has_negative_blank,
        known=sum(last - first + 1 for part in known.besides(lost) for first, last in part.offsets),
    )


def _name(key: TopicQueue) -> str:
    return f"{key[0]}/{key[1]}"


def _named(by_queue: "Mapping[TopicQueue, losses.Ranges] | None") -> "dict[str, losses.Ranges] | None":
    return None if by_queue is None else {_name(key): by_queue[key] for key in sorted(by_queue)}


def _queues(start: Start) -> dict[str, QueueOutcome]:
    queues = sorted(start.state.queues.items())
    offsets = start.state.next_offsets
    return {_name(key): QueueOutcome(queue.min_offset, queue.max_offset, offsets.get(key)) for key, queue in queues}


def _consumers(start: Start, known: KnownLosses) -> tuple[dict[str, QueueReading], losses.Losses]:
    state = start.state
    proof = prove(start.settings, state.loaded_segments)
    reader = Reader(state, proof)
    readings = {key: without_uncompacted(state, key, reader.read(queue)) for key, queue in sorted(state.queues.items())}
    state.segments.close()
    bases = start.settings.misnamed
    log_min = min((bases.get(file.path, file.base) for file in state.loaded_segments), default=0)
    misnamed = [
        SimulatedFile(file.path, bases[file.path], file.wrote) for file in state.loaded_segments if file.path in bases
    ]
    intact = prove(start.settings, misnamed).physical
    claims = {key: losses.claims_of(files, log_min) for key, files in state.loaded_queues.items()}
    own = losses.without_moved(proof, claims)
    confirmed = losses.confirmed_by(proof, own)
    result = losses.losses_of(proof, own, readings, state.log.max_offset, confirmed, intact)
    expired = sum(claim.expired for claim in claims.values())
    if expired:
        start.actions.log_reason(
            f"{expired} queue unit(s) point before physical offset {log_min}, so they have expired"
        )
    _note_deliveries(start, readings, known)
    if result.unqueued:
        start.actions.log_accepted(
            f"{result.unqueued} message(s) are intact and stay in the log, but no consumer gets them"
        )
    return {_name(key): reading for key, reading in readings.items()}, result


_GETS = {
    Delivery.SKIPPED: "the next remaining message",
    Delivery.BAD_CRC: "a message with a damaged body",
    Delivery.ZEROS: "zero bytes in place of a message",
    Delivery.UNDECODABLE: "bytes that no client can decode",
    Delivery.OTHER_TOPIC: "a message of another topic",
    Delivery.OTHER_QUEUE: "a message of another queue",
    Delivery.NOT_COMPACTED: "nothing: the log of the compacted topic ends before the message",
    Delivery.ERROR: "nothing: the broker ends the pull with an exception",
}
"""What a consumer gets; at other offsets nothing, and the state of the pull."""


def _known(start: Start) -> KnownLosses:
    with contextlib.suppress(LayoutError):
        return known_losses(start.settings.root, start.state.log.min_offset)
    return NONE


def _note_deliveries(start: Start, readings: Mapping[TopicQueue, QueueReading], known: KnownLosses) -> None:
    known_offsets = offsets_by_queue(known.queues)
    for key, reading in readings.items():
        lost = [(reading.offsets >= first) & (reading.offsets <= last) for first, last in known_offsets.get(key, ())]
        is_new = ~np.logical_or.reduce(lost) if lost else np.ones(len(reading.offsets), bool)
        for number, state in enumerate(STATES):
            count = int(((reading.states == number) & (is_new | (state is not Delivery.SKIPPED))).sum())
            if count and state is not Delivery.OK:
                gets = _GETS.get(state, f"nothing ({state})")
                start.actions.log_accepted(
                    f"queue {_name(key)}: at {count} of {len(reading.states)} offsets a consumer gets {gets}"
                )
        is_shifted = (reading.states == STATES.index(Delivery.OK)) & (reading.stated != reading.offsets)
        shifted = int((is_shifted & is_new).sum())
        if reading.passed_over:
            start.actions.log_accepted(
                f"queue {_name(key)}: {reading.passed_over} message(s) follow a unit that points to no record, and a "
                "consumer that comes from before it does not get them: the same pull passes over them "
                "(DefaultMessageStore.getMessage)"
            )
        if shifted:
            start.actions.log_accepted(
                f"queue {_name(key)}: {shifted} message(s) at another offset than their records state"
            )


def _abort_after(start: Start) -> bool:
    path = start.abort.relative_to(start.settings.root).as_posix()
    changed = file_changes(start)
    return path in changed.created or (start.had_abort and path not in changed.deleted)


def _effort(start: Start) -> Effort:
    scanned = start.state.scanned
    dispatching = scanned.dispatched / _DISPATCHED_PER_MINUTE
    return Effort(
        scanned.bytes,
        scanned.records,
        scanned.dispatched,
        round(scanned.bytes / _CACHED_BYTES_PER_MINUTE + dispatching, 2),
        round(scanned.bytes / _DISK_BYTES_PER_MINUTE + dispatching, 2),
    )


def _plan(start: Start) -> Plan:
    state = start.state
    return Plan(
        steps=tuple(start.actions.steps),
        segments=tuple(
            FilePlan(segment.path, segment.base, segment.wrote, segment.is_new) for segment in state.log.files
        ),
        scan_from=state.scanned.from_offset,
        cut_at=state.scanned.end_offset,
        dispatch_from=state.reput_from,
        queues={key: _queue_plan(queue) for key, queue in state.queues.items()},
        index_files=tuple(file.path for file in state.index.files if file.path is not None),
        checkpoint=state.checkpoint,
    )


def _queue_plan(queue: AnyQueue) -> QueuePlan:
    files = queue.files.files
    return QueuePlan(
        queue.kind,
        tuple(FilePlan(file.path, file.base, file.wrote, file.is_new) for file in files),
        queue.max_physical_offset,
        tuple(_appended(file) for file in files if file.changed_from is not None),
    )


def _appended(file: QueueFile) -> tuple[Path, int, bytes]:
    start = file.changed_from or 0
    return file.path, start, file.units().tobytes()[start : file.wrote]
