"""Runs a salvage: merges the copies into a new log and derives everything else from it."""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from mqtool.choices import FileKind
from mqtool.commands import Opened, command, put_in_place
from mqtool.errors import (
    FormatError,
    LayoutError,
    NothingFoundError,
    RefusedError,
    StoreError,
    UnsupportedFormatError,
    UsageError,
)
from mqtool.formats import checkpoint, config_files, config_json, file_names, timer
from mqtool.formats.topics import TIMER_TOPIC
from mqtool.jobs.atomic import SUFFIX, check_interrupted, create_file, staged_directory
from mqtool.jobs.progress import OnProgress, ignore
from mqtool.rebuild.compaction import CompactedQueue, rebuild_compaction
from mqtool.rebuild.files import OutputFiles
from mqtool.rebuild.job import KINDS, claims_of, rebuild
from mqtool.rebuild.metadata import ComposedFiles, compose, survey_log
from mqtool.rebuild.queue_writer import QueueName, has_expired_queue, write_expired_queues
from mqtool.rebuild.settings import settings_of
from mqtool.rebuild.timer import rebuild_timer
from mqtool.repair.derived import timer_notes
from mqtool.repair.journal import check_finished
from mqtool.repair.salvage.merge import KeptLog, Merge, MovedLog
from mqtool.repair.salvage.report import SalvageResult, add_losses
from mqtool.repair.salvage.unit_evidence import ForeignRecords
from mqtool.store.config.metadata import SINGLE_DATABASE, unread_database
from mqtool.store.config.rocksdb import has_data
from mqtool.store.file_sizes import TIMER_LOG
from mqtool.store.files import copy_tree, is_regular, list_directory, read_file
from mqtool.store.known_file import KnownFile
from mqtool.store.known_losses import LostOffsets, content
from mqtool.store.layout import queue_files
from mqtool.store.lock import lock_holder
from mqtool.store.log.readable_parts import UnreadableParts
from mqtool.store.log.selection import Selection
from mqtool.store.paths import denied, denied_paths, evidence_of, is_inside
from mqtool.store.queues.filter_bit_maps import bit_maps_of
from mqtool.store.store import Store, open_store
from mqtool.store.target import LogFiles
from mqtool.store.topics import purgeable_topics
from mqtool.store.waiting.pending import pending_messages
from mqtool.store.waiting.timer import checkpoint_path, log_file_size, saved_checkpoint
from mqtool.verify import verify

_EVER = 1 << 62

T = TypeVar("T")


class SalvageOptions(Struct, frozen=True):
    """Options of a salvage."""

    copies: tuple[Path, ...] = ()  # roots of further copies of the same log, the more trusted first
    compact: bool = False  # move records together
    without_topics: tuple[str, ...] = ()  # globs of topics whose messages are left out; requires `compact`
    map_file: Path | None = None  # new file for the moves as CSV `old,new,length`; required with `compact`
    # Broker keys, of all copies; where each one's log is counts from its root.
    config: "str | Path | Mapping[str, object] | None" = None
    skip_unreadable: bool = False  # leave out what this user may not read; what is lost by that is unknown


def salvage(
    root: Path, target: Path, options: SalvageOptions | None = None, on_progress: OnProgress = ignore
) -> SalvageResult:
    """Copies every provable record of a store, which is only read, to a new one, and derives the rest of it.

    The new store must not exist; it appears once it is complete and durable. Progress is in bytes of the first copy's
    log.

    Raises:
        RefusedError: the target exists, the copies are not of one log, or a change of a copy is unfinished.
        LayoutError: segments of several sizes cannot be kept in place.
        UnsupportedFormatError: the log is a DLedger log.
        NothingFoundError: no record is provable.
        UsageError: options do not go together, the target is inside of a store, or a copy has no log.
        PermissionDeniedError: this user may not read a file or directory of a copy.
        StoreError: a file cannot be read or written.
    """
    chosen = options or SalvageOptions()
    if chosen.compact != (chosen.map_file is not None):
        raise UsageError("--compact needs a file for the map of offsets, and --map needs --compact")
    if chosen.without_topics and not chosen.compact:
        raise UsageError("--without-topic needs --compact: otherwise the topics' space would not be freed")
    if chosen.map_file is not None and os.path.lexists(chosen.map_file):
        _remove_interrupted_map(target, chosen.map_file)
    with _opened(root, target, chosen) as (stores, left_out):
        if chosen.without_topics:
            chosen = replace(chosen, without_topics=purgeable_topics(stores, chosen.without_topics))
        job: _Salvage | None = None
        try:
            with staged_directory(target) as work:
                job = _Salvage(stores, target, chosen, work)
                job.note_left_out(left_out)
                return job.run(on_progress)
        except BaseException:
            if job is not None and job.has_map and chosen.map_file is not None:
                chosen.map_file.unlink(missing_ok=True)
            raise


@contextlib.contextmanager
def _opened(root: Path, target: Path, options: SalvageOptions) -> Iterator[tuple[list[Store], list[Path]]]:
    """Yields the opened copies, and what this user may not read; raises what `salvage` raises before reading."""
    with contextlib.ExitStack() as stack:
        stores = [stack.enter_context(open_store(root, options.config))]
        stores += [stack.enter_context(open_store(copy, stores[0].config.for_copy(copy))) for copy in options.copies]
        left_out = [path for store in stores for path in denied_paths(store.path, *store.layout.log_dirs)]
        if left_out and not options.skip_unreadable:
            raise denied(left_out[0], "cannot be read", "; or leave it out: mqtool salvage --skip-unreadable")
        for store in stores:
            store.commit_log.unreadable = UnreadableParts()
        _check(stores, target, options)
        yield stores, left_out


def check_salvage(root: Path, target: Path, options: SalvageOptions) -> None:
    """Raises what `salvage` would raise before it reads the log; nothing is written."""
    if os.path.lexists(target):
        raise RefusedError("target", "this exists; give the name of a new directory", target)
    with _opened(root, target, options):
        pass


def _remove_interrupted_map(target: Path, path: Path) -> None:
    """Removes the map of a run that was interrupted between writing it and naming its store; refuses other files."""
    marker = target.with_name(target.name + SUFFIX) / _MAP_MARK
    if not marker.is_file() or marker.read_bytes() != os.fsencode(path.absolute()):
        raise RefusedError("target", "expected a new file for the map of offsets", path)
    check_interrupted(target)
    path.unlink()


def _check(stores: list[Store], target: Path, options: SalvageOptions) -> None:
    for store in stores:
        check_finished(store.path)
        if store.layout.dledger_dirs:
            raise UnsupportedFormatError(
                f"{store.layout.dledger_dirs[0]}: a DLedger log; convert it to a plain CommitLog first with mqtool "
                "convert"
            )
        for part in (store.path, *store.layout.commit_log_dirs):
            if is_inside(target, part):
                raise UsageError(
                    f"{target}: expected a directory outside of {part}: mqtool writes nothing into a store"
                )
    for copy in stores[1:]:
        if not copy.commit_log.segments:
            raise UsageError(f"{copy.path}: expected a copy with a CommitLog below it, found no segment")
    sizes = {segment.size for store in stores for segment in store.commit_log.segments[:-1]}
    if options.compact:
        return
    size = _segment_size(stores)
    for store in stores:
        for segment in store.commit_log.segments:
            if segment.base % size or segment.size > size:
                raise LayoutError(
                    f"is not in a sequence of segments of {size} bytes (found {sorted(sizes)}), so records cannot keep "
                    "their offsets: correct mappedFileSizeCommitLog in broker.conf, or use `mqtool salvage --compact`",
                    segment.path,
                )


def _segment_size(stores: list[Store]) -> int:
    for store in stores:
        if store.layout.commit_log_size is not None:
            return store.layout.commit_log_size.value
    reason = "expected a CommitLog, found no copy with a segment whose size is known; nothing was written"
    raise NothingFoundError(reason, stores[0].path)


def _displaced(store: Store) -> Iterator[Store]:
    """Opens each file of a log whose place is taken by another file."""
    for file in store.layout.displaced:
        opened = LogFiles(file.path, [KnownFile(file.path, FileKind.COMMIT_LOG, file.base)])
        opened.commit_log.unreadable = UnreadableParts()
        yield opened


_MAP_MARK = "map-written"
"""File next to an unfinished store that names the map of offsets which its run wrote."""


class _Salvage:
    """One salvage."""

    def __init__(self, stores: list[Store], target: Path, options: SalvageOptions, work: Path) -> None:
        self._stores = stores
        self._displaced = [segment for store in stores for segment in _displaced(store)]
        self._options = options
        self._work = work
        self._new = work / "store"
        self._config = stores[0].config.for_copy(self._new)
        self._result = SalvageResult(
            stores[0].path,
            target,
            options.copies,
            options.compact,
            map_file=options.map_file,
            broker_conf=options.config,
        )
        self._settings_source = next((store for store in stores if store.commit_log.segments), stores[0])
        self._settings = settings_of(self._settings_source)
        self._foreign: list[tuple[int, ForeignRecords]] = []
        self.has_map = False
        """Whether the map of offsets was written, which is of no use without the store."""

    def run(self, on_progress: OnProgress) -> SalvageResult:
        """Does everything except naming the new store."""
        log = self._copy_log(on_progress)
        moved = log.moves.records if isinstance(log, MovedLog) else lambda physical: physical
        self._derive(moved)
        self._keep_config()
        self._rebuild_timer()
        missing = self._missing_ranges(log)
        with open_store(self._new) as new:
            compacted = self._rebuild_compaction(new)
            add_losses(self._result, self._stores, missing, self._foreign, new, moved, compacted)
            self._record_losses(new.commit_log.max_offset)
        self._result.has_unread |= self._is_unread(missing)
        if isinstance(log, MovedLog):
            self._write_map(log)
        with open_store(self._new, self._config) as new:
            verification = verify(new)
        self._result.verify, start = verification.state.value, verification.next_start
        if start is not None and start.do_not_start and start.losses is None:
            self._result.starts = False
            steps = command("verify", Opened(self._result.store, self._options.config))
            self._result.notes.append(
                f"the new store: {start.headline}. Correct the old one first, as {steps} says, and salvage again"
            )
        self._note_parts()
        self._note_purged()
        if self._replaces_old():
            self._result.put_in_place = put_in_place(self._result.target, self._result.store)
        return self._result

    def _replaces_old(self) -> bool:
        """Whether a broker can use the new store in the old one's place as it is."""
        result, old = self._result, self._stores[0]
        is_ready = result.starts and not (result.has_unread or result.has_unread_tables)
        is_inside_root = all(is_inside(directory, old.path) for directory in old.layout.commit_log_dirs)
        return is_ready and is_inside_root and lock_holder(old.path) is None

    def _copy_log(self, on_progress: OnProgress) -> "KeptLog | MovedLog":
        """Writes the new log, and adds to the result what it holds and what was decided on the way."""
        result, merge = self._result, Merge(self._stores, self._displaced)
        by_source = [0] * (len(self._stores) + len(self._displaced))
        log = self._write_runs(merge, by_source, on_progress)
        if log.end is None:
            raise NothingFoundError(
                "expected at least one provable record, found none; nothing was written", self._result.store
            )
        if not log.records:
            reason = "every provable record is of a topic that is to be left out; nothing was written"
            raise NothingFoundError(reason, self._result.store)
        merge.check_history({number for number, count in enumerate(by_source) if count})
        result.records, result.holes, result.unplaced = log.records, log.holes, log.unplaced
        result.conflicts = merge.conflicts
        result.records_by_copy = by_source[: len(self._stores)]
        self._close_displaced(by_source[len(self._stores) :])
        self._note_decisions(merge)
        self._foreign = merge.foreign
        for _, part in self._foreign:
            result.notes.append(
                f"{part.path} is of another broker's log: {part.evidence}. {len(part.kept)} of its records fit "
                f"between those of this log and are kept, {part.left_out} are left out"
            )
        return log

    def _write_runs(self, merge: Merge, by_source: list[int], on_progress: OnProgress) -> "KeptLog | MovedLog":
        """Writes all runs of records; counts those of each source in `by_source`."""
        result = self._result
        with OutputFiles(self._new) as files:
            log: KeptLog | MovedLog
            size = _segment_size(self._stores)
            if self._options.compact:
                log = MovedLog(files, size, merge.is_blank, start=size if self._has_expired_queue() else 0)
            else:
                log = KeptLog(files, size, merge.is_blank)
            begin, total = self._stores[0].commit_log.min_offset, self._stores[0].commit_log.bytes_in_use
            left_out = Selection.of(topics=self._options.without_topics)
            for run in merge.runs():
                if isinstance(log, MovedLog) and self._options.without_topics:
                    purged = left_out.narrow(run.frames)
                    result.purged_records += len(purged)
                    result.purged_bytes += int(purged.sizes.sum())
                    log.add(run, purged.positions)
                else:
                    log.add(run)
                by_source[run.source] += len(run.frames)
                result.bytes += run.end - run.start
                on_progress(min(max(run.end - begin, 0), total), total)
        return log

    def _has_expired_queue(self) -> bool:
        """Whether a queue is to continue after messages that have expired: its unit needs a place before the log."""
        return any(has_expired_queue(store, self._expired_before) for store in self._stores)

    @property
    def _expired_before(self) -> int:
        """Physical offset before which no store has a segment: the records there have expired."""
        logs = [store.commit_log for store in self._stores]
        return min((log.min_offset for log in logs if log.segments), default=0)

    def _close_displaced(self, counts: list[int]) -> None:
        """Closes the displaced files, and notes how many records came from each."""
        for store, count in zip(self._displaced, counts, strict=True):
            store.close()
            if count:
                self._result.notes.append(
                    f"{count} record(s) are from {store.path}: they belong in a segment whose own file has no intact "
                    "record at their physical offsets"
                )

    def _note_decisions(self, merge: Merge) -> None:
        """Notes records that differ between copies, and those whose fields were corrected."""
        differ = f"differ between copies in fields that no checksum covers; those of {self._result.store} were taken"
        moved = "are from blocks that were in another place of their segment"
        wrong = "had wrong values in fields without a checksum; they were corrected from the queues and neighbours"
        corrected = [f"{at} ({', '.join(sorted(fields))})" for at, fields in merge.corrected.items()]
        decisions: tuple[tuple[int, str, Sequence[object]], ...] = (
            (merge.conflicts, differ, merge.conflict_offsets),
            (len(merge.displaced), moved, merge.displaced),
            (len(corrected), wrong, corrected),
        )
        self._result.notes += [
            f"{count} record(s) {what}: physical offsets {', '.join(map(str, offsets[:10]))}"
            for count, what, offsets in decisions
            if count
        ]

    def _record_losses(self, log_end: int) -> None:
        """Records the lost messages: later checks expect them."""
        queues = [LostOffsets(row.topic, row.queue_id, row.lost_offsets) for row in self._result.queues if row.lost]
        if queues:
            create_file(self._new / file_names.KNOWN_LOSSES, content(log_end, queues))

    def _missing_ranges(self, log: "KeptLog | MovedLog") -> list[tuple[int, int]]:
        """Returns the ranges of the old log that are not in the new one, including its front and its end."""
        assert log.end is not None
        ranges = [(hole.start, hole.end) for hole in log.holes] + [(at, at + 1) for at in log.unplaced]
        if isinstance(log, MovedLog):
            first = log.old_start
        else:
            with open_store(self._new) as opened:
                first = opened.commit_log.min_offset
        return sorted([(0, first), *ranges, (log.end, _EVER)] if first else [*ranges, (log.end, _EVER)])

    def note_left_out(self, paths: list[Path]) -> None:
        """Notes what this user may not read, so that the result is not complete."""
        self._result.has_unread = bool(paths)
        reason = "was left out, so what is lost is unknown"
        self._result.notes += [f"{path} {reason}: {evidence_of(path)}" for path in paths]

    def _is_unread(self, missing: list[tuple[int, int]]) -> bool:
        """Whether bytes that could not be read lie where the new log has nothing."""
        unread = [
            part
            for log in (store.commit_log for store in self._stores)
            for segment in log.segments
            for part in (log.unreadable.ranges(segment.path, segment.base) if log.unreadable else ())
        ]
        return any(start < end_gone and start_gone < end for start, end in unread for start_gone, end_gone in missing)

    def _derive(self, moved: Callable[[np.ndarray], np.ndarray]) -> None:
        """Builds queues and index from the new log; `moved` returns the new physical offsets of old records."""
        claims = [claims_of(store) for store in self._stores]

        def claimed(name: QueueName, offset: int) -> int | None:
            places = (claim(name, offset) for claim in claims)
            place = next((place for place in places if place is not None), None)
            return None if place is None else int(moved(np.array([place]))[0])

        derived = self._work / "derived"
        with open_store(self._new, self._config) as opened:
            bit_maps = bit_maps_of(self._stores[0]) if self._settings.has_extension else None
            result = rebuild(opened, derived, self._settings, claims=claimed, bit_maps=bit_maps)
        for kind in KINDS:
            if (derived / kind).exists():
                (derived / kind).rename(self._new / kind)
        self._result.index_files = result.index_files
        self._write_expired_queues()

    def _write_expired_queues(self) -> None:
        """Writes the ends of queues whose messages have expired; nothing if a compacted log begins at 0."""
        new, settings = self._new, self._settings
        if not self._options.compact:
            write_expired_queues(self._stores, new, settings, self._config)
            return
        with open_store(new, self._config) as opened:
            begins = opened.commit_log.min_offset
        if begins:
            write_expired_queues(
                self._stores,
                new,
                settings,
                self._config,
                expired_before=self._expired_before,
                without_topics=self._options.without_topics,
            )

    def _keep_config(self) -> None:
        """Copies readable tables, and rebuilds the others and the checkpoint."""
        config = self._new / file_names.CONFIG
        config.mkdir()
        for name, data in _tables(self._stores):
            kept = _without_positions(name, data, self._options.without_topics)
            (config / name).write_bytes(kept)
            self._result.config[name] = "copied" if kept == data else "copied, without positions in omitted topics"
        self._copy_access_rules()
        self._copy_checkpoint()
        with open_store(self._new, self._config) as opened:
            survey = survey_log(opened, self._settings.rules)
            composed = compose(opened, survey, self._settings_source)
        moved = _POSITIONS & {guess.file for guess in composed.guesses}
        for name, data in self._of_release(composed.files, survey.last_record).items():
            table = name.removeprefix(f"{file_names.CONFIG}/")
            if table not in self._result.config:
                (self._new / name).write_bytes(data)
                self._result.config[table] = "rebuilt from the log and the readable files"
            elif table in moved:
                (self._new / name).write_bytes(data)
                self._result.config[table] = "copied; offsets outside their queues were corrected"
        self._add_topics(composed)

    def _add_topics(self, composed: ComposedFiles) -> None:
        """Adds topics that the copied table lacks and that the old store had queues of, or whose queues need a type.

        A deleted topic, of which only the log has messages, stays deleted.
        """
        path = self._new / file_names.CONFIG / file_names.TOPICS
        complete = config_files.parse_topics(composed.files[f"{file_names.CONFIG}/{file_names.TOPICS}"])
        had_queues = {queue.topic for store in self._stores for queue in store.disk_queues()}
        table = complete.topic_config_table
        deleted = {
            topic
            for topic in composed.unconfigured
            if topic not in had_queues and table[topic].queue_type != config_files.BATCH_QUEUES
        }
        if len(deleted) < len(composed.unconfigured) and self._result.config[file_names.TOPICS].startswith("copied"):
            kept = {topic: config for topic, config in table.items() if topic not in deleted}
            style = config_json.style_of(path.read_bytes())
            path.write_bytes(config_files.build_topics(replace(complete, topic_config_table=kept), style))
            self._result.config[file_names.TOPICS] = "copied, with missing topics added"

    def _of_release(self, files: dict[str, bytes], last: int) -> dict[str, bytes]:
        """Marks the checkpoint with the release of the first copy, as a clean shutdown does."""
        parsed = checkpoint.parse(files[file_names.CHECKPOINT])
        if self._settings_source.version.line in ("5.4", "5.5"):
            parsed = replace(parsed, confirm_physical_offset=last, logics_physical_offset=last)
        return {**files, file_names.CHECKPOINT: checkpoint.build(parsed)}

    def _copy_access_rules(self) -> None:
        """Copies the databases of users and of their permissions, which refer to no message."""
        for name in (file_names.USERS, file_names.ACLS):
            for store in self._stores:
                place = store.path / file_names.CONFIG / name
                if place.is_dir() and name not in self._result.config:
                    (self._new / file_names.CONFIG / name).mkdir()
                    copy_tree(place, self._new / file_names.CONFIG / name)
                    self._result.config[name] = "copied"

    def _rebuild_timer(self) -> None:
        """Writes the timer's files if its topic has messages; the first checkpoint states which were delivered."""
        source, values = self._stores[0], self._config.values
        size = log_file_size(source.path, source.config)
        with open_store(self._new, replace(self._config, values={**values, TIMER_LOG.key: str(size)})) as new:
            if new.queue(TIMER_TOPIC, 0) is None or self._config.flag("timerRocksDBEnable"):
                return
            checkpoints = (saved_checkpoint(store.path) for store in self._stores)
            known = next((known for known in checkpoints if known.last_read_time_ms > 0), None)
            if known is not None:
                checkpoint_path(self._new).write_bytes(timer.build_checkpoint(known))
            self._result.notes += timer_notes(rebuild_timer(new, self._new))

    def _rebuild_compaction(self, new: Store) -> list[CompactedQueue]:
        """Writes the compacted topics, and copies how far each of them has been compacted."""
        for store in self._stores:
            positions = store.path / file_names.COMPACTION_POSITIONS
            with contextlib.suppress(FormatError, StoreError):
                data = read_file(positions)
                config_json.parse(data)
                (self._new / file_names.COMPACTION).mkdir()
                (self._new / file_names.COMPACTION_POSITIONS).write_bytes(data)
                break
        with OutputFiles(self._new) as files:
            queues = list(rebuild_compaction(self._stores, new, files, self._options.without_topics))
        self._result.notes += [note for queue in queues for note in queue.notes]
        self._result.has_unread_queues |= any(queue.notes for queue in queues)
        has_files = any(queue_files(store.path / file_names.COMPACTION_LOG) for store in self._stores)
        keys = ("compactionMappedFileSize", "compactionCqMappedFileSize")
        if queues and not has_files and all(self._config.integer(key) is None for key in keys):
            self._result.notes.append(
                f"no file shows the size of compacted logs, so the broker's default is assumed: if its {keys[0]} or "
                f"{keys[1]} differs, salvage again with --config; it serves no compacted log of another size"
            )
        return queues

    def _copy_checkpoint(self) -> None:
        """Copies a checkpoint because of the release that it shows; a new one replaces it at the end."""
        for store in self._stores:
            if store.checkpoint is not None:
                (self._new / file_names.CHECKPOINT).write_bytes(read_file(store.path / file_names.CHECKPOINT))
                return

    def _write_map(self, log: MovedLog) -> None:
        path = self._options.map_file
        assert path is not None
        lines = ["old,new,length", *(",".join(map(str, move)) for move in log.moves)]
        (self._work / _MAP_MARK).write_bytes(os.fsencode(path.absolute()))
        create_file(path, ("\n".join(lines) + "\n").encode("ascii"))
        self.has_map = True

    def _note_purged(self) -> None:
        """Notes what is left out on request, and what no longer leads to a message."""
        names, notes = self._options.without_topics, self._result.notes
        if not names:
            return
        count, size = self._result.purged_records, self._result.purged_bytes
        notes.append(f"{count} records of {', '.join(names)}, {size} bytes, were left out")
        notes.append(
            "physical offsets have changed: offset message ids that clients, logs or ORIGIN_MESSAGE_ID of retries "
            "state lead nowhere or to another message; the map has the new ones. Unique keys and queue offsets of "
            "other topics are the same"
        )
        notes.append(
            "the topics themselves stay, empty; their queues begin at 0, without positions of groups; delete unused "
            "topics with mqadmin"
        )
        pending = pending_messages(self._stores[0])
        waiting = [message for message in pending if message.topic in names and message.stored_topic not in names]
        if waiting:
            notes.append(
                f"{len(waiting)} message(s) for these topics are waiting in system topics and will be delivered; list "
                "them with mqtool pending"
            )

    def _note_parts(self) -> None:
        root, notes = self._result.store, self._result.notes
        notes += self._stores[0].layout.place_of_copied_log(self._result.target)
        for store in self._stores:
            notes += store.commit_log.unreadable.sentences() if store.commit_log.unreadable else []
        for part in (file_names.TIMER_LOG, file_names.TIMER_WHEEL, file_names.ROCKSDB_STORE):
            is_written = (self._new / part).exists() or not (root / part).exists()
            if not is_written and not (part == file_names.ROCKSDB_STORE and has_data(root / part)):
                notes.append(f"{part} was not copied: the broker recreates it, or works without it")
        if has_data(root / file_names.ROCKSDB_STORE):
            offsets = "; do not copy it: it contains physical offsets of the old log" if self._options.compact else ""
            notes.append(
                f"{file_names.ROCKSDB_STORE} has data and was not copied: timers, transactions or an index that a "
                "broker keeps there (timerRocksDBEnable, transRocksDBEnable, indexRocksDBEnable) are not in the new "
                f"store{offsets}"
            )
        self._note_unread_tables()
        if empty := [f"{row.topic}/{row.queue_id}" for row in self._result.queues if row.lost and not row.max_offset]:
            notes.append(f"no message of {', '.join(empty)} is left: these queues begin at queue offset 0 again")
        if any(hole.filled == "filler" for hole in self._result.holes):
            notes.append(
                "holes are filled with records of topic MQTOOL_HOLE that are marked as rolled back: no queue "
                "and no key leads to them"
            )
        if self._result.lost:
            notes.append(
                "a consumer that asks for a lost queue offset gets the next remaining message, so one that does not "
                "filter by tags may get a message more than once"
            )

    def _note_unread_tables(self) -> None:
        """Notes that the first copy keeps topics, groups and positions in a database that is not read."""
        store, result = self._stores[0], self._result
        reason = unread_database(store.path / file_names.CONFIG, store.config)
        if not reason:
            return
        result.has_unread_tables = True
        place = f"{file_names.CONFIG}/{SINGLE_DATABASE}"
        result.notes.append(
            f"{reason}: they are not in the new store, which has only topics and groups that the log shows. To keep "
            f"them, copy {store.path / place} to {result.target / place}, and compare the positions with the ends of "
            "the queues before you start the broker"
        )


_POSITIONS = {file_names.CONSUMER_OFFSETS, file_names.LMQ_CONSUMER_OFFSETS, file_names.DELAY_OFFSETS}
"""Tables of positions in queues: one beyond the end of its queue would pass over the messages that come next."""


def _tables(stores: list[Store]) -> list[tuple[str, bytes]]:
    """Returns name and content of every readable table, from the first copy that has it."""
    tables: dict[str, bytes] = {}
    for store in stores:
        for name, data in store.metadata.files_of_databases():
            tables.setdefault(name, data)
        for name, path in store.metadata.sources.items():
            tables.setdefault(name, read_file(path))
        for entry in list_directory(store.path / file_names.CONFIG):
            if (
                not entry.name.endswith(".json")
                or entry.name in tables
                or entry.name in _KNOWN
                or not is_regular(entry)
            ):
                continue
            with contextlib.suppress(FormatError, StoreError):
                data = read_file(Path(entry.path))
                config_json.parse(data)
                tables[entry.name] = data
    return sorted(tables.items())


def _without_positions(name: str, data: bytes, names: tuple[str, ...]) -> bytes:
    """Returns a table of consumer offsets without the positions in some topics; other tables unchanged.

    A queue that begins at 0 again must not have an old position: its group would skip the next messages.
    """
    if not names or name not in (file_names.CONSUMER_OFFSETS, file_names.LMQ_CONSUMER_OFFSETS):
        return data
    parsed = config_files.parse_consumer_offsets(data)

    def kept(table: Mapping[str, T]) -> dict[str, T]:
        return {key: value for key, value in table.items() if config_files.split_topic_group(key)[0] not in names}

    lmq, pulled = parsed.lmq_offset_table, parsed.pull_offset_table
    changed = replace(
        parsed,
        offset_table=kept(parsed.offset_table),
        lmq_offset_table=None if lmq is None else kept(lmq),
        pull_offset_table=None if pulled is None else kept(pulled),
    )
    return config_files.build_consumer_offsets(changed, config_json.style_of(data))


_KNOWN = (
    file_names.TOPICS,
    file_names.SUBSCRIPTION_GROUPS,
    file_names.CONSUMER_OFFSETS,
    file_names.LMQ_CONSUMER_OFFSETS,
    file_names.DELAY_OFFSETS,
)
"""Tables that `metadata` reads: where it did not, they cannot be read."""
