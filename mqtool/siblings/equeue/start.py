"""Models a start of the broker on a store: states of chunks, data ends, refusals, losses. Nothing is written.

Every rule is one of ECommon 2.6.5 (ChunkManager.Load, Chunk.InitCompleted, Chunk.InitOngoing) or EQueue 2.6.3
(Queue.Load, DefaultQueueStore, DefaultConsumeOffsetStore, BrokerController.Start).
"""

from pathlib import Path

from msgspec import Struct, field

from mqtool.errors import FormatError, UnreadableError
from mqtool.formats import equeue, java
from mqtool.formats.equeue import ENTRY_SIZE, FOOTER_SIZE, HEADER_SIZE, Shape
from mqtool.records.damage import Damage
from mqtool.siblings.equeue import listing
from mqtool.siblings.equeue.chunk import ChunkFile, is_decodable, valid_run
from mqtool.siblings.equeue.listing import EQueueSettings, Listing, QueueFiles
from mqtool.siblings.frames import FIRST_WINDOW, WINDOW, Frame
from mqtool.store.log.readable_parts import UnreadableParts


class Refusal(Struct, frozen=True):
    """Why the broker does not start."""

    exception: str  # name of the .NET exception
    message: str  # its text if the .NET libraries have one, otherwise mqtool's description
    path: Path  # the file that causes it
    remedy: str  # what to do


class StartRefusedError(Exception):
    """Ends the loading with a `Refusal`; it does not leave this package."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class LoadedChunk(Struct):
    """A chunk as loaded by the broker."""

    file: ChunkFile | None  # the open file; None for a chunk that the start creates
    # number, capacity: values of its header
    number: int
    capacity: int
    completed: bool  # whether it is loaded as completed, which depends only on its place in the list of files
    data_end: int  # data position at which writing continues; for a completed chunk, the data size in its footer

    @property
    def start(self) -> int:
        """Global position of the chunk's first data byte."""
        return self.number * self.capacity

    @property
    def global_end(self) -> int:
        """Global position of the chunk's data end."""
        return self.start + self.data_end


class LoadedQueue(Struct):
    """A queue as loaded by the broker."""

    # topic, queue_id: the queue
    topic: str
    queue_id: int
    chunks: dict[int, LoadedChunk]  # chunks by number
    current: LoadedChunk  # the chunk that is written to; see `Start`
    next_offset: int  # queue offset of the next message
    # producer_visible, consumer_visible: values of queue.setting
    producer_visible: bool
    consumer_visible: bool

    @property
    def min_offset(self) -> int:
        """First queue offset of the oldest chunk; -1 for a queue without messages."""
        if self.next_offset == 0:
            return -1
        first = self.chunks[min(self.chunks)]
        return first.start // ENTRY_SIZE


class Start(Struct):
    """Result of a start."""

    refusal: Refusal | None = None  # why the broker refuses to start; None if it starts
    clears_root: bool = False  # whether the broker first deletes everything below the root
    messages: dict[int, LoadedChunk] = field(default_factory=dict)  # message chunks by number
    # the message chunk that is written to: the one loaded last, whose file is the last in the list, although another
    # one may have a higher number (ChunkManager.AddChunk, GetLastChunk). The broker reads no position after its end
    # (ChunkReader.TryReadAt). None if the broker does not start.
    current: LoadedChunk | None = None
    queues: dict[tuple[str, int], LoadedQueue] = field(default_factory=dict)  # queues by topic and queue id
    # consumed offsets with which the broker continues
    offsets: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  # descriptions of what the broker does without an error

    def close(self) -> None:
        """Closes the chunk files."""
        for chunks in (self.messages, *(queue.chunks for queue in self.queues.values())):
            for chunk in chunks.values():
                if chunk.file is not None:
                    chunk.file.close()


def start(root: Path, settings: EQueueSettings, shape: Shape) -> Start:
    """Computes the result of a broker start; writes nothing. Bytes that decide nothing may be unreadable.

    The settings may differ from those of the broker that wrote the store; `shape` is the record layout that this broker
    reads. Raises UnreadableError if the system cannot read a header, a footer, or what follows the last valid record or
    entry of a chunk that would be continued.
    """
    outcome = Start()
    listed = listing.list_store(root)
    try:
        outcome.offsets = _offsets(root, outcome)
        outcome.messages = _load(listed.messages, "MessageChunk", settings, shape)
        if outcome.messages:
            outcome.current = _loaded_last(outcome.messages)
            outcome.notes += _current_notes(listed.messages[-1], outcome.current, outcome.messages)
        _load_queues(listed, settings, outcome)
    except StartRefusedError as error:
        outcome.refusal = error.refusal
        return outcome
    if not outcome.messages or not outcome.queues:
        _clear(outcome, settings)
    return outcome


def _load(paths: tuple[Path, ...], name: str, settings: EQueueSettings, shape: Shape | None) -> dict[int, LoadedChunk]:
    """Loads the chunks of a folder as the broker does: all but the last as completed, newest first, then the last."""
    chunks: dict[int, LoadedChunk] = {}
    for path in (*reversed(paths[:-1]), *paths[-1:]):
        file = _opened(path)
        is_last = path == paths[-1]
        if is_last:
            end = _ongoing_entries(file) if shape is None else _ongoing_records(file, settings, shape)
        else:
            end = _completed(file, f"({name}-#{file.header.chunk_number})", fixed=shape is None)
        header = file.header
        if header.chunk_number in chunks:
            raise StartRefusedError(
                Refusal(
                    "ArgumentException",
                    "The key already existed in the dictionary.",
                    path,
                    f"two files state chunk number {header.chunk_number}: move the one that is not a chunk elsewhere",
                )
            )
        chunks[header.chunk_number] = LoadedChunk(file, header.chunk_number, header.capacity, not is_last, end)
    return chunks


def _loaded_last(chunks: dict[int, LoadedChunk]) -> LoadedChunk:
    return next(reversed(chunks.values()))  # in the order of loading


def _current_notes(path: Path, current: LoadedChunk, chunks: dict[int, LoadedChunk]) -> list[str]:
    """Describes what the broker does if the chunk that it writes to does not have the highest number."""
    if current.number == max(chunks):
        return []
    beginning = f"{path.name} is the last file in the list and states chunk number {current.number}"
    note = f"{beginning}: the broker continues there, and serves no message of later chunks"
    following = chunks.get(current.number + 1)
    if following is not None and following.file is not None:
        note += f"; when it is full, {following.file.path.name} is deleted"
    return [note]


def _opened(path: Path) -> ChunkFile:
    try:
        file = ChunkFile(path, UnreadableParts())
    except FormatError as error:
        raise StartRefusedError(_no_header(path, "is shorter than a header")) from error
    if not file.header.is_valid:
        raise StartRefusedError(_no_header(path, f"states {file.header.chunk_number}, {file.header.capacity}"))
    return file


def _no_header(path: Path, why: str) -> Refusal:
    """Returns the refusal for a chunk without a header.

    The broker's own error is lost, because its handler fails when it formats a chunk without a header.
    """
    return Refusal("NullReferenceException", f"the header {why}", path, "restore the header, or remove an empty file")


def _completed(file: ChunkFile, name: str, *, fixed: bool) -> int:
    """Checks a completed chunk as Chunk.CheckCompletedFileChunk does; returns its data size."""
    size = file.footer_data_size
    remedy = "write the footer at the end of its records and cut the file there"
    if size is None:
        raise StartRefusedError(Refusal("Exception", "too short for a footer", file.path, remedy))
    if size < 0:
        message = "chunkDataTotalSize should be non negative.\nParameter name: chunkDataTotalSize"
        raise StartRefusedError(Refusal("ArgumentOutOfRangeException", message, file.path, remedy))
    needed = HEADER_SIZE + size + FOOTER_SIZE
    if needed != file.size:
        message = (
            f"The size of chunk {name} should be equals with fileStream's length {file.size}, "
            f"but instead it was {java.to_int32(needed)}."
        )
        raise StartRefusedError(Refusal("ChunkBadDataException", message, file.path, remedy))
    if fixed and size != file.header.capacity:
        message = (
            f"For fixed-size chunk, the total data size of chunk {name} should be {file.header.capacity}, "
            f"but instead it was {size}."
        )
        raise StartRefusedError(Refusal("ChunkBadDataException", message, file.path, "rebuild the queue"))
    return size


def _ongoing_records(file: ChunkFile, settings: EQueueSettings, shape: Shape) -> int:
    """Returns the data end that the broker finds in the last message chunk (Chunk.TryParsingDataPosition)."""
    limit = file.size - FOOTER_SIZE - HEADER_SIZE
    at = 0
    while at < limit:
        run = file.run(at, limit, settings.max_record_size, WINDOW if at else FIRST_WINDOW)
        if len(run := valid_run(file, shape, run).run):
            at = run.end
            continue
        frame = file.frame_at(at, limit, settings.max_record_size)
        if not isinstance(frame, Frame):
            _refuse_unread(file, file.unread_at(at, frame))
            break
        if not is_decodable(frame.record, shape):
            break
        at = frame.end
    return at


def _ongoing_entries(file: ChunkFile) -> int:
    """Returns the data end that the broker finds in the last chunk of a queue."""
    limit = max(0, file.size - FOOTER_SIZE - HEADER_SIZE) // ENTRY_SIZE
    positions = file.entries(limit)["position_plus_one"]
    bad = (positions <= 0).nonzero()[0]
    end = (int(bad[0]) if len(bad) else len(positions)) * ENTRY_SIZE
    if len(bad):
        _refuse_unread(file, file.unread(end, end + ENTRY_SIZE))
    return end


def _refuse_unread(file: ChunkFile, unread: Damage | None) -> None:
    if unread is not None:
        raise UnreadableError(unread.detail, file.path)


def _load_queues(listed: Listing, settings: EQueueSettings, start: Start) -> None:
    for folder in listed.bad_folders:
        remedy = "move the folder out of the store"
        exception, reason = "FormatException", "the name of a queue's folder is not a number"
        if listing.is_integer(folder.name):
            exception, reason = "OverflowException", "Value was either too large or too small for an Int32."
        raise StartRefusedError(Refusal(exception, reason, folder, remedy))
    for folder in listed.unread_folders:
        name = f"{folder.parent.name}/{int(folder.name)}"
        start.notes.append(
            f"folder {folder.parent.name}/{folder.name} is not read: queue {name} is that of folder {name}"
        )
    for queue in listed.queues:
        loaded = _load_queue(queue, settings)
        if loaded is not None and queue.chunks:
            start.notes += _current_notes(queue.chunks[-1], loaded.current, loaded.chunks)
        if loaded is None:
            start.notes.append(f"queue {queue.topic}/{queue.queue_id} is marked as deleted and not loaded")
        else:
            start.queues[queue.topic, queue.queue_id] = loaded


def _load_queue(queue: QueueFiles, settings: EQueueSettings) -> LoadedQueue | None:
    try:
        setting = listing.setting(queue.directory)
    except FormatError as error:
        path = queue.directory / equeue.QUEUE_SETTING
        raise StartRefusedError(
            Refusal("JsonReaderException", str(error), path, "delete the file: the broker then uses the defaults")
        ) from error
    if setting.is_deleted:
        return None
    chunks = _load(queue.chunks, f"QueueChunk-{queue.topic}@{queue.queue_id}", settings, None)
    if not chunks:
        chunks = {0: LoadedChunk(None, 0, settings.queue_chunk_size, completed=False, data_end=0)}
    current = _loaded_last(chunks)
    visible = setting.producer_visible, setting.consumer_visible
    return LoadedQueue(queue.topic, queue.queue_id, chunks, current, current.global_end // ENTRY_SIZE, *visible)


def _offsets(root: Path, start: Start) -> dict[str, dict[str, dict[str, int]]]:
    """Reads consumed offsets as DefaultConsumeOffsetStore does: the backup only if the main file cannot be read."""
    first, backup = root / equeue.CONSUME_OFFSETS, root / equeue.CONSUME_OFFSETS_BACKUP
    try:
        offsets = listing.consume_offsets(first)
    except FormatError:
        start.notes.append(f"{first.name} cannot be read: the broker uses its backup")
        try:
            return listing.consume_offsets(backup) or {}
        except FormatError as error:
            raise StartRefusedError(
                Refusal("JsonReaderException", str(error), backup, "restore one of the two files, or delete both")
            ) from error
    if offsets is None and backup.is_file():
        start.notes.append(
            f"{first.name} is missing or empty: the broker starts without offsets and overwrites the backup"
        )
    return offsets or {}


def _clear(start: Start, settings: EQueueSettings) -> None:
    """Models BrokerController.Clean: without message chunks or without queues, everything below the root is deleted."""
    missing = "message chunks" if not start.messages else "queues"
    start.notes.append(f"there are no {missing}: the broker DELETES everything below the root")
    start.close()
    start.clears_root = True
    start.queues = {}
    start.offsets = {}
    start.current = LoadedChunk(None, 0, settings.message_chunk_size, completed=False, data_end=0)
    start.messages = {0: start.current}
