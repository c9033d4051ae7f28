"""Reads an EQueue store: messages with damage, queues, single messages."""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache, cached_property, partial
from itertools import pairwise
from pathlib import Path

import numpy as np
from msgspec import Struct

from mqtool.errors import CorruptionError, FormatError, UnreadableError, UnsupportedFormatError
from mqtool.formats import equeue
from mqtool.formats.equeue import ENTRY_SIZE, FOOTER_SIZE, HEADER_SIZE, MAX_RECORD_SIZE, MessageRecord, Shape
from mqtool.records.damage import Damage
from mqtool.siblings.base import UnreadChunks, chunks_in_order, missing_chunks
from mqtool.siblings.equeue.chunk import ChunkFile, ValidRun, valid_run
from mqtool.siblings.equeue.listing import Listing, QueueFiles, list_store, settings_of
from mqtool.siblings.frames import Frame, InvalidFrame, scan_frames
from mqtool.store.files import Closing
from mqtool.store.log.readable_parts import UnreadableParts

_CHUNK_TYPE_AT = equeue.HEADER.offset("reserved")
"""Position of ChunkType in chunk headers of later ECommon versions; in earlier headers it is reserved."""
_INDEX_CHUNK = 1


class StoredMessage(Struct, frozen=True):
    """A record and its position."""

    position: int  # global position of its frame
    chunk: ChunkFile  # the chunk that holds it
    frame: Frame  # the frame
    record: MessageRecord  # its fields

    @property
    def length(self) -> int:
        """Size of the record in bytes, without the lengths before and after it."""
        return len(self.frame.record)


class Tail(Struct, frozen=True):
    """The bytes after the last record of the last chunk."""

    end: int  # global position after the last record
    kind: str  # "clean" if all bytes are zero, otherwise "leftover"
    length: int  # number of bytes up to the last one that is not zero


class EQueueStore(Closing):
    """A store of EQueue's chunk files, read-only.

    `chunks` are message chunks in the broker's order, without those in `unopened` (no valid header, or the system
    refuses to read them) and `duplicates` (by path, files that state the number of another file in their folder: that
    file). `opened` opens a chunk file as this store opens them.
    """

    def __init__(
        self, path: Path, max_record_size: int = MAX_RECORD_SIZE, unreadable: UnreadableParts | None = None
    ) -> None:
        """Opens the message chunks; records larger than `max_record_size` bytes count as damage.

        Unreadable parts of chunks are noted in `unreadable`, and then are damage of kind `unreadable`, or an error
        without it. Raises NotAStoreError if there are no chunks, UnsupportedFormatError if a later version of ECommon
        wrote them.
        """
        self.path = path
        self.max_record_size = max_record_size
        self.listing: Listing = list_store(path)
        self.unopened = UnreadChunks()
        self.duplicates: dict[Path, ChunkFile] = {}
        self.opened: Callable[[Path], ChunkFile] = partial(ChunkFile, unreadable=unreadable)
        self.chunks = self._open(self.listing.messages)
        self._queues: dict[Path, list[ChunkFile]] = {}
        self.tail: Tail | None = None

    @cached_property
    def shape(self) -> Shape:
        """The record layout: the one that matches most of the first records."""
        votes: Counter[Shape] = Counter()
        for chunk in self.chunks:
            at = 0
            while isinstance(frame := chunk.frame_at(at, chunk.room, self.max_record_size), Frame):
                shape = equeue.detect(frame.record, chunk.start + at)
                votes.update([shape] if shape else [])
                at = frame.end
                if votes.total() >= 16:
                    break
        return votes.most_common(1)[0][0] if votes else equeue.CURRENT

    @cached_property
    def capacity(self) -> int:
        """Data bytes of a message chunk, by the majority of headers; 0 without chunks."""
        sizes = Counter(chunk.header.capacity for chunk in self.chunks)
        return sizes.most_common(1)[0][0] if sizes else 0

    @property
    def queues(self) -> tuple[QueueFiles, ...]:
        """The folders of the queues."""
        return self.listing.queues

    def queue_chunks(self, queue: QueueFiles) -> list[ChunkFile]:
        """Returns the chunks of a queue in the broker's order."""
        if queue.directory not in self._queues:
            self._queues[queue.directory] = self._open(queue.chunks)
        return self._queues[queue.directory]

    def messages(self, name: str = "") -> Iterator[StoredMessage | Damage]:
        """Yields the messages of a chunk file, or of all, by global position, with damaged ranges between them.

        A damaged range ends at the next record that states its own position.
        """
        for item in self.runs(name):
            if isinstance(item, ValidRun):
                yield from (self.message_of(item, number) for number in range(len(item.run)))
            else:
                yield item

    def runs(self, name: str = "") -> Iterator[ValidRun | StoredMessage | Damage]:
        """Yields the messages of a chunk file, or of all, as columns: runs of valid records, with damage between them.

        A record longer than a read window is yielded as a `StoredMessage`.
        """
        self.tail = None
        last = self.chunks[-1] if self.chunks else None
        chunks = sorted(self.chunks, key=lambda chunk: chunk.header.chunk_number)
        missing = self.missing_chunks()
        unread = {path: reason for path, reason in self.unread.items() if path in self.listing.messages}
        for item in chunks_in_order(chunks, missing, unread, name):
            if isinstance(item, Damage):
                yield item
            else:
                is_last = item is last and not item.is_finished and not self.lacks_footer(item)
                yield from self._records(item, is_last=is_last)

    def lacks_footer(self, chunk: ChunkFile) -> bool:
        """Whether a completed chunk lost its footer: the broker completes all but the last one (Chunk.Complete)."""
        return not chunk.is_finished and chunk.path not in self._last_paths

    @cached_property
    def _last_paths(self) -> tuple[Path, ...]:
        """The last message chunk file, with and without those that are not read because of a copy."""
        paths = self.listing.messages
        distinct = [path for path in paths if path not in self.duplicates]
        return *paths[-1:], *distinct[-1:]

    def lost_end(self, chunk: ChunkFile, at: int) -> Damage | None:
        """Returns the range after `at`, the end of a chunk's last valid record, that may hold further ones, or None.

        The system cannot read the next record, or the chunk was completed and lost its footer. A file in which only the
        footer is damaged has no such range: the footer follows the last record.
        """
        if chunk.is_finished or chunk.size == HEADER_SIZE + at + FOOTER_SIZE:
            return None
        if self.lacks_footer(chunk):
            detail = "the completed chunk has no footer: records that followed are lost"
            return chunk.damage(at, max(at, chunk.header.capacity), InvalidFrame("no-footer", detail))
        message = self.read(chunk, at)
        if isinstance(message, StoredMessage) or message.kind == "no-room":
            return None
        unread = chunk.unread_at(at, message)
        return unread and chunk.damage(at, max(unread.end - chunk.start, chunk.last_used(at, chunk.room)), message)

    @property
    def unread(self) -> dict[Path, str]:
        """Reason by path, for chunk files whose records are not read."""
        copies = {
            path: f"states chunk number {kept.header.chunk_number}, as {kept.path.name} does, which is read instead"
            for path, kept in self.duplicates.items()
        }
        return self.unopened.reasons | copies

    @cached_property
    def names(self) -> tuple[str, ...]:
        """File names of the message chunks in the order of positions, including unreadable and missing ones."""
        numbered = {chunk.path.name: chunk.header.chunk_number for chunk in self.chunks}
        others = [path.name for path in self.unread if path in self.listing.messages]
        others += [gap.file_name for gap in self.missing_chunks()]
        numbered |= {name: equeue.named_number(name) or 0 for name in others}
        return tuple(sorted(numbered, key=lambda name: (numbered[name], name)))

    def missing_chunks(self) -> list[Damage]:
        """Returns the missing chunks between existing ones, and those after the last one to which queue entries point.

        The broker deletes the oldest chunks first, so missing chunks before the first existing one are not damage. A
        chunk whose name and header differ is neither of the two numbers' missing one, and proves no other chunk.
        """
        numbers, known = _numbers(self.chunks, self.listing.messages)
        if not numbers:
            return []
        inside = [range(before + 1, after) for before, after in pairwise(numbers)]
        end = (numbers[-1] + 1) * self.capacity
        named = np.concatenate([np.empty(0, np.int64), *map(self._newest_entries, self.queues)]) - 1
        ahead = named[named >= end]
        newest = int(ahead.max() // self.capacity) if len(ahead) else -1
        # A chunk contains at least one message, so a single garbled entry does not prove a series of missing chunks.
        proved = range(numbers[-1] + 1, newest + 1) if newest - numbers[-1] <= len(ahead) else range(0)
        return missing_chunks([*inside, proved], known, self.capacity, self._path_of)

    @property
    def misnumbered(self) -> list[ChunkFile]:
        """The chunks whose header states another number than their name and their first record."""
        suspects = (chunk for chunk in self.chunks if equeue.named_number(chunk.path.name) != chunk.header.chunk_number)
        first = ((chunk, self.read(chunk, 0)) for chunk in suspects)
        return [
            chunk
            for chunk, message in first
            if isinstance(message, StoredMessage) and message.record.log_position != chunk.start
        ]

    def _path_of(self, number: int) -> Path:
        return self.path / equeue.MESSAGE_CHUNKS / equeue.chunk_name(equeue.MESSAGE_PREFIX, number)

    def _newest_entries(self, queue: QueueFiles) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
        """Returns `position_plus_one` of the entries in a queue's last two chunks."""
        newest = [
            chunk.entries(min(chunk.header.capacity, chunk.room) // ENTRY_SIZE)["position_plus_one"].astype(np.int64)
            for chunk in self.queue_chunks(queue)[-2:]
        ]
        return np.concatenate([np.empty(0, np.int64), *newest])

    def message_of(self, valid: ValidRun, number: int) -> StoredMessage:
        """Returns one message of a run."""
        frame = Frame(int(valid.run.positions[number]), valid.run.record(number))
        record, _ = self.shape.parse(frame.record)
        return StoredMessage(valid.chunk.start + frame.start, valid.chunk, frame, record)

    def run_of(self, message: StoredMessage) -> ValidRun:
        """Returns a single message as a run of one."""
        length = equeue.LENGTH.struct.pack(message.length)
        run = scan_frames(length + message.frame.record + length, message.frame.start, self.max_record_size)
        return valid_run(message.chunk, self.shape, run)

    def message_at(self, position: int) -> StoredMessage:
        """Returns the message whose frame begins at a global position.

        Raises CorruptionError if there is no valid record, UnreadableError if the system cannot read what is there.
        """
        chunk = self.chunk_of(position)
        if chunk is None:
            raise CorruptionError("no chunk holds this position", self.path, position)
        message = self.read(chunk, position - chunk.start)
        if isinstance(message, InvalidFrame):
            raise chunk.refuse(position - chunk.start, message, "no message")
        return message

    def chunk_of(self, position: int) -> ChunkFile | None:
        """Returns the chunk that contains a global position."""
        return next((c for c in self.chunks if c.start <= position < c.start + c.header.capacity), None)

    def read(self, chunk: ChunkFile, start: int) -> StoredMessage | InvalidFrame:
        """Reads the record whose frame begins at a data position of a chunk."""
        frame = chunk.frame_at(start, chunk.room, self.max_record_size)
        return frame if isinstance(frame, InvalidFrame) else self.decode(chunk, frame)

    def decode(self, chunk: ChunkFile, frame: Frame) -> StoredMessage | InvalidFrame:
        """Decodes the record of a frame."""
        try:
            record, _ = self.shape.parse(frame.record)
        except FormatError as error:
            return InvalidFrame("no-record", str(error), len(frame.record))
        if not record.is_decodable:
            times = f"{record.created_time}, {record.stored_time}"
            return InvalidFrame("no-record", f"times {times} are outside the range of dates", len(frame.record))
        return StoredMessage(chunk.start + frame.start, chunk, frame, record)

    def entries(self, queue: QueueFiles, only: Path | None = None) -> Iterator[tuple[int, equeue.QueueEntry] | Damage]:
        """Yields (queue offset, entry) for each entry of a queue, and unreadable parts; see `entry_arrays`."""
        for item in self.entry_arrays(queue, only):
            if isinstance(item, Damage):
                yield item
                continue
            first, entries = item
            for number, values in enumerate(entries.tolist(), first):
                yield number, equeue.QueueEntry(*values)

    def entry_at(self, queue: QueueFiles, offset: int) -> equeue.QueueEntry | None:
        """Returns the entry at a queue offset; None if the queue has none there. Raises UnreadableError."""
        for item in self.entry_arrays(queue):
            if isinstance(item, Damage):
                if item.start <= offset * ENTRY_SIZE < item.end:
                    raise UnreadableError(item.detail, item.path or queue.directory)
            elif item[0] <= offset < item[0] + len(item[1]):
                return equeue.QueueEntry(*item[1][offset - item[0]].item())
        refused = [path for path in queue.chunks if path in self.unopened.unknown]
        number = offset // settings_of(self.path, self.listing).queue_chunk_entries if refused else 0
        for path in refused:
            if equeue.named_number(path.name) == number:
                raise UnreadableError(self.unopened.reasons[path], path)
        return None

    def entry_arrays(
        self, queue: QueueFiles, only: Path | None = None
    ) -> Iterator[tuple[int, "np.ndarray[tuple[int], np.dtype[np.void]]"] | Damage]:
        """Yields (queue offset of the first entry, array of entries) of a queue's chunks, see `ChunkFile.entry_parts`.

        The last array ends where the broker finds the end of the queue. `only` limits this to one chunk file.
        """
        chunks = self.queue_chunks(queue)
        for chunk in chunks:
            if only in (None, chunk.path):
                yield from chunk.entry_parts(is_last=chunk is chunks[-1])

    def unread_entries(self, queue: QueueFiles, only: Path | None = None) -> list[Damage]:
        """Returns a damage for each chunk of a queue that cannot be read, and for each missing one between others.

        `entry_arrays` yields the unreadable parts of other chunks. Positions are those of entries: a queue offset times
        12 bytes. `only` limits this to one chunk file.
        """
        chunks = self.queue_chunks(queue)
        unread = {path: reason for path, reason in self.unread.items() if path.parent == queue.directory}
        if only is not None:
            return [Damage(0, 0, "no-chunk", unread[only], only)] if only in unread else []
        numbers, known = _numbers(chunks, queue.chunks)
        gaps = [range(before + 1, after) for before, after in pairwise(numbers)]
        capacity = max((chunk.header.capacity for chunk in chunks), default=0)
        missing = missing_chunks(
            gaps, known, capacity, lambda number: queue.directory / equeue.chunk_name(equeue.QUEUE_PREFIX, number)
        )
        return [*(Damage(0, 0, "no-chunk", reason, path) for path, reason in unread.items()), *missing]

    def close(self) -> None:
        """Closes all files."""
        for chunk in (*self.chunks, *(chunk for chunks in self._queues.values() for chunk in chunks)):
            chunk.close()

    def _open(self, paths: tuple[Path, ...]) -> list[ChunkFile]:
        chunks: list[ChunkFile] = []
        for path in paths:
            chunk = self.unopened.open(path, self.opened)
            if chunk is None:
                continue
            if not chunk.header.is_valid:
                self.unopened.reasons[path] = f"number {chunk.header.chunk_number}, capacity {chunk.header.capacity}"
                chunk.close()
                continue
            _refuse_later_line(chunk)
            chunks.append(chunk)
        return self._distinct(chunks)

    def _distinct(self, chunks: list[ChunkFile]) -> list[ChunkFile]:
        """Returns one chunk for each number, preferably the file that the number names; the others are `duplicates`.

        The broker starts with none of them: two files that state one number end its start.
        """
        best = {chunk.header.chunk_number: chunk for chunk in sorted(chunks, key=_has_its_name)}
        for chunk in chunks:
            kept = best[chunk.header.chunk_number]
            if chunk is not kept:
                self.duplicates[chunk.path] = kept
                chunk.close()
        return [chunk for chunk in chunks if chunk is best[chunk.header.chunk_number]]

    def _records(self, chunk: ChunkFile, *, is_last: bool) -> Iterator[ValidRun | StoredMessage | Damage]:
        used = cache(lambda: chunk.room if chunk.is_finished else chunk.last_used(0, chunk.room))
        rest = yield from chunk.walk(
            chunk.room,
            self.max_record_size,
            partial(valid_run, chunk, self.shape),
            partial(self.read, chunk),
            lambda at: self._resume(chunk, at, used()),
        )
        at, reason = (chunk.room, None) if rest is None else rest
        lost = self.lost_end(chunk, at)
        if lost is not None:
            yield lost
        if lost is not None or reason is None:
            return
        end = max(at, used())
        if is_last:
            self.tail = Tail(chunk.start + at, "leftover" if end > at else "clean", end - at)
        elif end > at:
            yield chunk.damage(at, end, reason)

    def _resume(self, chunk: ChunkFile, after: int, end: int) -> int | None:
        """Returns the data position of the next record up to `end` that states its own position; None without one."""
        for start in chunk.candidates(after + 1, end):
            if isinstance(self.read(chunk, start), StoredMessage):
                return start
        return None


def _numbers(chunks: list[ChunkFile], paths: tuple[Path, ...]) -> tuple[list[int], set[int | None]]:
    """Returns the sorted numbers that are certain, and all that a name or a header states.

    A number is certain if name and header state it; without such a chunk, all headers' numbers count.
    """
    stated = {chunk.header.chunk_number for chunk in chunks}
    certain = {
        chunk.header.chunk_number
        for chunk in chunks
        if equeue.named_number(chunk.path.name) == chunk.header.chunk_number
    }
    return sorted(certain or stated), {*stated, *(equeue.named_number(path.name) for path in paths)}


def _has_its_name(chunk: ChunkFile) -> bool:
    """Whether a file has the name that the broker gives to a chunk of its number."""
    number = equeue.named_number(chunk.path.name)
    prefixes = equeue.MESSAGE_PREFIX, equeue.QUEUE_PREFIX
    return number == chunk.header.chunk_number and chunk.path.name in (equeue.chunk_name(p, number) for p in prefixes)


def _refuse_later_line(chunk: ChunkFile) -> None:
    header = equeue.HEADER.build(chunk.header)
    kind = equeue.LENGTH.parse(header, _CHUNK_TYPE_AT).length
    if kind == _INDEX_CHUNK and not any(header[_CHUNK_TYPE_AT + 8 :]):
        chunk.close()
        raise UnsupportedFormatError(
            f"{chunk.path}: is an index chunk of ECommon's later line (type {kind} at byte {_CHUNK_TYPE_AT}), "
            "which EQueue does not use and mqtool does not read"
        )
