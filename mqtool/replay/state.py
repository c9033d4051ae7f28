"""What the runs of a replay share: the saved position, the file of old and new ids, and the rate."""

import json
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from mqtool.errors import StoreError, UsageError
from mqtool.ingest.bulk_ingest import Ack, HasMessage, take
from mqtool.jobs.atomic import writing
from mqtool.jobs.progress import Throttle
from mqtool.jobs.resume import ResumeFile, open_after
from mqtool.records.damage import Damage
from mqtool.replay.originals import Original, Position, SkippedCounts, Source
from mqtool.store import open_store
from mqtool.store.config.broker_config import BrokerConfig
from mqtool.store.log.commit_log import (
    PRINT_BYTES,
    Fingerprint,
    fingerprint_at_start,
    fingerprint_before,
    fingerprint_of,
    matches,
)
from mqtool.values import asdict

VERSION = 1

REMEMBER_SECONDS = 1.0

_SLOWEST = 1e-6
"""Messages a second."""

_CHUNKS_A_SECOND = 4
"""Minimum number of chunks per second under a rate limit; no message is sent more than a quarter of a second early."""

T = TypeVar("T", bound=HasMessage)


class State(Struct, frozen=True):
    """Saved state of a replay."""

    shape: dict[str, Any]  # settings that must not change between the runs of the replay
    source: Fingerprint | None  # fingerprint of the source; None if it was empty
    after: Position | None  # position of the last message that was handled; None if there was none
    target: Fingerprint | None  # fingerprint of the target's bytes before `end`; None if there were none
    end: int  # physical offset up to which the target has been searched or written
    ids_bytes: int = 0  # length of the file of ids in bytes
    replayed: int = 0  # and refused: messages replayed and refused so far
    refused: int = 0
    damage: int = 0  # number of damaged ranges of the source's log before `after`
    read_to: int = 0  # physical offset up to which a run has read the source's log; 0 if none has read it to its end

    @property
    def known(self) -> int | None:
        """The physical offset up to which a source's log has been read; None if the log was empty."""
        if self.source is None:
            return None
        return max(self.source.offset, self.read_to, self.after[0] if self.after else 0)

    def passed(self, before: "State", damage: list[Damage]) -> "State":
        """Returns this state with the number of damaged ranges before `after`, which a later run does not read again.

        The damage is what this run has found since the state `before`, also after `after`.
        """
        after = self.after
        passed = 0 if after is None else sum(item.start < after[0] for item in damage)
        return replace(self, damage=before.damage + passed)

    def ended(self, before: "State", skipped: SkippedCounts, limit: int | None) -> "State":
        """Returns the state after all messages of a run, with how far it has read if its limit did not end it."""
        handled = self.replayed + self.refused - before.replayed - before.refused
        if limit is not None and handled >= limit:
            return self
        return replace(self, read_to=max(self.read_to, skipped.read_to))

    def save(self, path: Path) -> None:
        """Replaces the state file durably."""
        _file(path).save(asdict(self))


def load(path: Path) -> State | None:
    """Reads a state; None if there is no file. Raises ConfigFileError if it is not the state of a replay."""
    document = _file(path).load()
    if document is None:
        return None
    try:
        for name in ("source", "target"):
            document[name] = None if document[name] is None else Fingerprint(**document[name])
        after = document.pop("after")
        return State(after=None if after is None else (int(after[0]), int(after[1])), **document)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise _file(path).refuse(repr(error)) from error


def _file(path: Path) -> ResumeFile:
    return ResumeFile(path, VERSION, "a replay")


class Target(Struct, frozen=True):
    """The store that a replay writes."""

    root: Path  # of the store
    config: BrokerConfig  # to read it with; see `config_for_reading`


def check(state: State, shape: dict[str, Any], source: Source, target: Target | None, path: Path) -> None:
    """Raises UsageError if a state belongs to other options, source or target; `target` is None for brokers."""
    for name in {**shape, **state.shape}:
        value = shape.get(name)
        if state.shape.get(name) != value:
            reason = f"{name} was {state.shape.get(name)!r} and is now {value!r}"
            raise UsageError(f"{path}: belongs to another replay: {reason}; give a new state")
    if state.source is not None and not _matches(source, state.source):
        raise UsageError(f"{path}: belongs to another replay: {source.path} has changed; give a new state")
    if target is not None and state.target is not None and not _matches_target(target, state.target):
        reason = f"the log of {target.root} is not the one that was written up to physical offset {state.end}"
        raise UsageError(f"{path}: {reason}; give a new state, or the old store")


def resume(path: Path | None, shape: dict[str, Any], source: Source, target: Target | None) -> tuple[State, bool]:
    """Returns the state to begin with, and whether an earlier run has left it; raises as `load` and `check`."""
    state = None if path is None else load(path)
    if state is None or path is None:
        return State(shape, source_fingerprint(source), None, None, 0), False
    check(state, shape, source, target, path)
    return replace(state, source=source_fingerprint(source)) if state.source is None else state, True


def source_fingerprint(source: Source) -> Fingerprint | None:
    """Returns the fingerprint of a source; None if it is empty.

    For a log or a file it covers the first bytes, which do not change as the log or file grows. For an export it covers
    the list of files, since a new file may sort between old ones.
    """
    if source.is_store:
        with source.open() as store:
            return fingerprint_at_start(store.commit_log)
    data = _head(source, PRINT_BYTES)
    return fingerprint_of(0, data) if data else None


def target_fingerprint(target: Target, end: int) -> Fingerprint | None:
    """Returns the fingerprint of the bytes before the physical offset `end` of a log."""
    with open_store(target.root, target.config) as store:
        return fingerprint_before(store.commit_log, end)


def _matches(source: Source, fingerprint: Fingerprint) -> bool:
    if not source.is_store:
        return fingerprint_of(0, _head(source, fingerprint.count)) == fingerprint
    with source.open() as store:
        return matches(store.commit_log, fingerprint)


def _matches_target(target: Target, fingerprint: Fingerprint) -> bool:
    try:
        with open_store(target.root, target.config) as store:
            return matches(store.commit_log, fingerprint)
    except StoreError:
        return False


def _head(source: Source, count: int) -> bytes:
    """Returns the first bytes of a file; for a directory, the names and sizes of its files of messages."""
    path = source.path
    try:
        if path.is_dir():
            listed = sorted((str(file.relative_to(path)), file.stat().st_size) for file in source.files)
            return json.dumps(listed).encode() if listed else b""
        with path.open("rb") as file:
            return file.read(count)
    except OSError as error:
        raise StoreError(f"cannot be read: {error.strerror}", path) from error


class IdsFile:
    """Writes the file from its start, or continues it after the bytes that an earlier run made durable."""

    def __init__(self, path: Path | None, known_bytes: int, *, resumes: bool) -> None:
        """Opens the file, and cuts off what follows the bytes known to be durable; None for a path writes nothing.

        Raises UsageError if the file exists although no earlier run is continued, or is shorter than the earlier run
        left it; StoreError if the file cannot be written.
        """
        self._file: IO[bytes] | None = None
        if path is None:
            return
        with writing(path):
            if not resumes and path.exists() and path.stat().st_size:
                raise UsageError(f"{path}: exists; name a new file")
            self._file = open_after(path, known_bytes)

    def write(self, original: Original, ack: Ack) -> None:
        """Writes a line with the old and the new position of a message."""
        if self._file is None:
            return
        old = {name: value for name, value in original.place.items() if name not in ("topic", "unique_key")}
        line: dict[str, Any] = {
            "topic": original.place.get("topic"),
            "unique_key": original.place.get("unique_key"),
            "position": original.position[0],
            "old": old,
            "new": None,
            "reason": ack.reason or None,
        }
        if ack.stored:
            line["new"] = {
                "topic": ack.topic,
                "queue_id": ack.queue_id,
                "queue_offset": ack.queue_offset,
                "physical_offset": ack.physical_offset,
                "offset_message_id": ack.offset_message_id,
            }
        self._file.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass"))
        self._file.write(b"\n")

    def flush(self) -> int:
        """Makes the file durable; returns its length in bytes."""
        if self._file is None:
            return 0
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._file.tell()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._file is not None:
            self._file.close()


def check_rate(rate: float | None) -> None:
    """Raises UsageError if a rate is not above 0, infinite, or so small that no clock can wait for the next message."""
    if rate is not None and not _SLOWEST <= rate < math.inf:
        raise UsageError(f"expected a rate above 0 and from {_SLOWEST:g} on, found {rate:g}")


class Pace:
    """Splits a replay into chunks and delays them to keep the rate."""

    def __init__(self, rate: float | None, max_size: int) -> None:
        """Starts the clock, for a maximum of messages per second, None for no limit, and one of messages in a chunk."""
        self._size = max_size if rate is None else min(max_size, max(1, int(rate / _CHUNKS_A_SECOND)))
        self._throttle = Throttle(rate, makes_up=True, clock=time.monotonic, sleep=time.sleep)
        self._saved = time.monotonic()

    def chunks(self, items: Iterator[T]) -> Iterator[list[T]]:
        """Yields items in chunks; waits after each chunk until the rate allows the next one."""
        while chunk := take(items, self._size):
            yield chunk
            self._throttle.spend(len(chunk))

    def is_save_due(self) -> bool:
        """Whether it is time to save the position: REMEMBER_SECONDS after the start, or after the last True."""
        now = time.monotonic()
        if now - self._saved < REMEMBER_SECONDS:
            return False
        self._saved = now
        return True
