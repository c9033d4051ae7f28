"""Dispatch: writes the ConsumeQueue units and index entries of each record of the log.

Runs after the writer, in record order, in one thread. Few records are dispatched one by one, many as columns by
`records.dispatch`, which `rebuild` also uses; a property test ensures that both write the same bytes. Every step may
be repeated after a crash: a queue skips units that it already has, the index skips records below its end. Docs page:
docs/engine.md. Source: DefaultMessageStore.ReputMessageService, doDispatch, CommitLogDispatcherBuildConsumeQueue,
CommitLogDispatcherBuildIndex (4.9.7, 5.5.0).
"""

import logging
from collections.abc import Callable

from msgspec.structs import replace

from mqtool.engine.disk.files import ClosedFileError
from mqtool.engine.index import Index
from mqtool.engine.queues import UNIT_SIZE, AnyQueue, BatchQueue, ConsumeQueue, Queues
from mqtool.engine.statuses import NO_SPACE, RunningFlag, RunningFlags
from mqtool.engine.write.commit_log import CommitLog, WrittenRecords
from mqtool.errors import FormatError
from mqtool.formats import commit_log
from mqtool.formats.consume_queue import BatchConsumeQueueUnit
from mqtool.records.dispatch import Dispatched, DispatchRequest, DispatchRules, QueueUnits, queue_id_of, request_of
from mqtool.records.dispatch import Dispatcher as ColumnDispatcher
from mqtool.records.frame_scan import Stop, scan_some
from mqtool.records.frames import frames_at
from mqtool.records.queue_build import batch_units, pack, queue_keys

_LOG = logging.getLogger(__name__)
WINDOW = 8 << 20
"""Bytes of log that are dispatched as columns at once."""
FEWEST_IN_COLUMNS = 12
"""Below this number of records, dispatching one by one is faster.

Measured with extension modules, in µs of processor time a record, medians of nine alternating rounds on a busy machine:
in columns 371, 93, 68, 44, 30 for 1, 4, 8, 12, 23 records at once; one by one 65, 48, 63, 57, 75.
Without the modules the two are about equal at 23 records: 56 and 48.
"""
BitMapOf = Callable[[DispatchRequest], bytes]
"""Computes the filter bit map of a record, for the extension of its queue."""


def write_units(queues: Queues, topics: list[str], units: QueueUnits) -> int:
    """Appends the units of consecutive records to their queues: written to the page cache on return, not flushed.

    `topics` has the name of each topic number. Returns the store timestamp of the last record that got a unit, 0 if
    none did. If it raises OSError, some were not written; the call may be repeated with all of them.
    """
    if not len(units):
        return 0
    packed = pack(units, queue_keys(units))
    data, first_rows, last_rows = packed.units.tobytes(), packed.firsts, packed.order[packed.stops - 1]
    runs = zip(
        units.topic[first_rows].tolist(),
        units.queue_id[first_rows].tolist(),
        units.queue_offset[first_rows].tolist(),
        (units.physical_offset[last_rows] + units.size[last_rows]).tolist(),
        packed.stops.tolist(),
        packed.gaps.tolist(),
        strict=True,
    )
    start = 0
    for topic, queue_id, first, end, stop, has_gap in runs:
        queue = queues.find_or_create(topics[topic], queue_id)
        unit_bytes = data[start * UNIT_SIZE : stop * UNIT_SIZE]
        is_run = isinstance(queue, ConsumeQueue) and not has_gap and queue.put_run(first, unit_bytes, end)
        if queue is not None and not is_run:
            _append(queue, units.select(packed.order[start:stop]))
        start = stop
    return int(units.store_timestamp[-1])


def _append(queue: AnyQueue, units: QueueUnits) -> None:
    if isinstance(queue, ConsumeQueue):
        for unit in units.tuples("queue_offset", "physical_offset", "size", "tags_code"):
            queue.put(*unit)
        return
    for batch_unit in batch_units(units):
        queue.put_batch(batch_unit)


class Dispatcher:
    """The dispatch loop and its position.

    Attributes:
        reput_from_offset: physical offset of the next record to dispatch.
        queued_timestamp: store timestamp of the record that last got a unit, 0 if none did.
        rules: of the store's release and options.
    """

    def __init__(
        self,
        rules: DispatchRules,
        log: CommitLog,
        queues: Queues,
        index: Index | None,
        flags: RunningFlags,
        bit_map_of: BitMapOf | None = None,
    ) -> None:
        """Starts at the beginning of the log; `bit_map_of` is for the extension of the queues, if they have one."""
        self.reput_from_offset = 0
        self.queued_timestamp = 0
        self.rules = rules
        self._log = log
        self._queues = queues
        self._index = index
        self._flags = flags
        self._bit_map_of = bit_map_of
        self._columns = ColumnDispatcher(rules)
        self._may_use_columns = not log.options.consume_queue_ext
        self._written = WrittenRecords()
        log.written = self._written if self._may_use_columns else None

    def add_batch_topic(self, topic: str) -> None:
        """Dispatches records of a topic to BatchConsumeQueues; the topic must have no records yet."""
        self.rules = self._columns.rules = replace(self.rules, batch_topics=self.rules.batch_topics | {topic})

    def run(self, end: int, after_file: Callable[[], None]) -> int:
        """Dispatches records up to a physical offset, below which all are complete; returns how many.

        Units and entries are in the page cache on return; a flush of queues and index makes them durable. `after_file`
        is called after the records of each segment. If it raises OSError, dispatch stays at that record.
        """
        done = 0
        while self._from_first() < end and self._flags.queue_writeable:
            file = self._log.queue.find(self.reput_from_offset)
            if file is None:
                break
            start = self.reput_from_offset - file.file_from_offset
            stop = min(file.read_position, end - file.file_from_offset)
            if stop - start < commit_log.BLANK_SIZE:
                if stop < file.size:
                    break
                self.reput_from_offset = file.end
                continue
            view = file.view()
            if view is None:
                if file.available:
                    raise ClosedFileError(file.file.path)
                continue  # retention was faster: `min_offset` is after it
            done += self._run_file(view, start, stop, file.file_from_offset)
            if self.reput_from_offset < file.file_from_offset + stop:
                # The bytes contain no record: a master skips them too (ReputMessageService.doReput).
                _LOG.warning("skipped from=%d to=%d", self.reput_from_offset, file.file_from_offset + stop)
                self.reput_from_offset = file.file_from_offset + stop
            after_file()
        return done

    def _from_first(self) -> int:
        """Moves the position to the start of the log if retention has deleted what is there; returns it."""
        self.reput_from_offset = max(self.reput_from_offset, self._log.queue.min_offset)
        return self.reput_from_offset

    def _run_file(self, view: memoryview, start: int, stop: int, base: int) -> int:
        """Dispatches the records of one segment; stops at the first bytes that are not a record."""
        done, position, alone = 0, start, 0
        while position < stop:
            if not alone:
                taken, alone = self._run_columns(view[position : min(stop, position + WINDOW)], base + position)
                if taken:
                    done += taken
                    position = self.reput_from_offset - base
                    continue
            positions, _, ended = scan_some(view, position, max(1, alone))
            if not positions and ended is Stop.BLANK:
                self.reput_from_offset = base + len(view)
                break
            for at in positions or [position]:
                if at >= stop:
                    break
                try:
                    request = request_of(commit_log.parse_record(view, at), self.rules)
                except FormatError as error:
                    _LOG.error("no record to dispatch physical_offset=%d error=%s", base + at, error)
                    return done
                self.dispatch(request)
                done += 1
                position = at + request.size
                self.reput_from_offset = base + position
            alone = max(0, alone - len(positions))
        return done

    def _run_columns(self, view: memoryview, base: int) -> tuple[int, int]:
        """Dispatches the records of a window at once, unless they are few or one needs the scalar path.

        Returns how many were dispatched; if 0, also how many to dispatch one by one before columns are tried again.
        """
        if not self._may_use_columns or len(view) < FEWEST_IN_COLUMNS * commit_log.MIN_RECORD_SIZE:
            return 0, FEWEST_IN_COLUMNS
        frames = None
        upcoming = self._written.upcoming(base)
        if upcoming is not None and upcoming > base:
            view = view[: upcoming - base]
        else:
            frames = self._written.take(view, base)
        if frames is None:
            first, _, _ = scan_some(view, 0, FEWEST_IN_COLUMNS)
            if len(first) < FEWEST_IN_COLUMNS:
                return 0, max(1, len(first))
            frames = frames_at(view, 0, base)[1]
        if len(frames) < FEWEST_IN_COLUMNS or not frames.valid.all():
            return 0, min(len(frames), FEWEST_IN_COLUMNS)
        dispatched = self._columns.dispatch(frames, keys=self._index is not None)
        if dispatched.oddities:
            return 0, FEWEST_IN_COLUMNS
        self._write(dispatched, len(frames))
        self.reput_from_offset = base + int(frames.positions[-1] + frames.sizes[-1])
        return len(frames), 0

    def _write(self, dispatched: Dispatched, records: int) -> None:
        """Writes the units and index entries of a window's records."""
        newest = write_units(self._queues, self._columns.topics.names, dispatched.units)
        if self._index is not None:
            try:
                self._index.put_many(dispatched.keys, records)
            except OSError as error:
                self._note_index_error(error)
                raise
        self.queued_timestamp = newest or self.queued_timestamp

    def _note_index_error(self, error: OSError) -> None:
        if error.errno not in NO_SPACE:  # otherwise the store accepts no more messages
            self._flags.set(RunningFlag.INDEX_FILE_ERROR)

    def dispatch(self, request: DispatchRequest) -> None:
        """Dispatches one record; raises as `run`."""
        if request.is_queued:
            self._queue(request)
            self.queued_timestamp = request.store_timestamp
        if self._index is not None:
            try:
                self._index.put(request, with_tags=self.rules.index_tags)
            except OSError as error:
                self._note_index_error(error)
                raise

    def _queue(self, request: DispatchRequest) -> None:
        queue = self._queues.find_or_create(request.topic, request.queue_id)
        if isinstance(queue, BatchQueue):
            queue.put_batch(
                BatchConsumeQueueUnit(
                    request.physical_offset,
                    request.size,
                    request.tags_code,
                    request.store_timestamp,
                    request.base_queue_offset,
                    request.batch_size,
                )
            )
            return
        if queue is not None:
            self._put_unit(queue, request.queue_offset, request)
        further = request.further_queues(self.rules)
        if further.problem:  # the broker's dispatch stops forever at an offset that is not a number
            _LOG.error("light queues skipped physical_offset=%d reason=%s", request.physical_offset, further.problem)
        for name, queue_offset in further.queues:
            queue_id = queue_id_of(name, request.queue_id, self.rules)
            queue = self._queues.find_or_create(name, queue_id)
            if isinstance(queue, ConsumeQueue):
                self._put_unit(queue, queue_offset, request)

    def _put_unit(self, queue: ConsumeQueue, queue_offset: int, request: DispatchRequest) -> None:
        code = request.tags_code
        if queue.ext is not None and request.physical_offset + request.size > queue.max_physical_offset:
            bit_map = self._bit_map_of(request) if self._bit_map_of else b""
            code = queue.ext.put(code, request.store_timestamp, bit_map)
        queue.put(queue_offset, request.physical_offset, request.size, code)
