"""What a task made, and its manifest, by which a later run takes it over if this one ends before it commits.

```
_mqtool/staging-00000002-…/00003-1a2b3c4d/…            files of one attempt at a task
_mqtool/staging-00000002-…/00003-1a2b3c4d/task.json    written when all of them are complete
```

A manifest names its task by a digest of all that the files depend on: the byte range, the log's bytes before its end,
and the request. A run refers to the files where they are, so of two runs in an object store, which has no locks, both
can use them: whichever commits publishes them, and neither removes what the other may commit.
"""

import hashlib
import posixpath
import zlib
from collections import Counter
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from mqtool.export.parquet import FileEntry
from mqtool.export.target import Target

MANIFEST = "task.json"
_PIECE = 1 << 20


class TaskResult(Struct):
    """The result of a task."""

    number: int  # of the partition
    log_bytes: int  # bytes of log that it covered
    files: list[FileEntry] = field(default_factory=list)  # staged, in order
    topics: Counter[str] = field(default_factory=Counter)  # and classes: number of rows by topic, and by record class
    classes: Counter[str] = field(default_factory=Counter)
    damaged_bytes: int = 0  # bytes of log in the damage table
    is_taken_over: bool = False  # an earlier run had finished it


class FinishedTask(Struct, frozen=True):
    """A task whose files are complete."""

    key: str  # of the task, see `key_of`
    split: int  # bytes of log of a task in that run, which decide where the log is cut
    name: str  # of its files, without number and suffix
    attempt: str  # directory of its files
    result: TaskResult

    def save(self, target: Target) -> None:
        """Writes the manifest next to the files."""
        target.replace(f"{self.attempt}/{MANIFEST}", msgspec.json.encode(self))

    def is_whole(self, target: Target) -> bool:
        """Whether all files are there, with the size and the checksum that were written."""
        return all(_checksum(target, entry.staged) == (entry.size, entry.checksum) for entry in self.result.files)

    def renamed(self, number: int, name: str) -> TaskResult:
        """Returns the result in the plan of another run: with its number of the task, and its names of the files."""
        files = [replace(entry, path=_renamed(entry.path, self.name, name)) for entry in self.result.files]
        return replace(self.result, number=number, files=files, is_taken_over=True)


def key_of(*parts: Any) -> str:
    """Returns the digest of what the files of a task depend on: values that msgspec encodes."""
    return hashlib.blake2b(msgspec.json.encode(parts, order="deterministic"), digest_size=16).hexdigest()


def finished_tasks(target: Target, stagings: Iterable[str]) -> dict[str, FinishedTask]:
    """Returns the tasks of directories of staging files whose files have their sizes, by key."""
    tasks: dict[str, FinishedTask] = {}
    for staging in stagings:
        sizes = target.sizes(staging)
        manifests = {path: size for path, size in sizes.items() if posixpath.basename(path) == MANIFEST}
        with suppress(FileNotFoundError):  # another run has removed it
            for data in target.ends(manifests, max(manifests.values(), default=0)):
                with suppress(msgspec.DecodeError):  # another release wrote it
                    task = msgspec.json.decode(data, type=FinishedTask, dec_hook=_counted)
                    if all(sizes.get(entry.staged) == entry.size for entry in task.result.files):
                        tasks[task.key] = task
    return tasks


def discard(target: Target, stagings: Iterable[str], keep: Collection[str]) -> None:
    """Removes directories of staging files, except for some attempts in them."""
    for staging in stagings:
        names = [f"{staging}/{name}" for name in target.names(staging)]
        unused = [path for path in names if path not in keep]
        for path in [staging] if len(unused) == len(names) else unused:
            target.remove(path)


def _counted(_: type, value: Any) -> Any:
    """Decodes a Counter, which msgspec does not know."""
    return Counter(value)


def _renamed(path: str, name: str, to: str) -> str:
    directory, base = posixpath.split(path)
    return posixpath.join(directory, to + base.removeprefix(name))


def _checksum(target: Target, path: str) -> tuple[int, int]:
    """Returns size and CRC-32 of a file; -1 if it is not there."""
    size = checksum = 0
    try:
        with target.open(path) as file:
            while piece := file.read(_PIECE):
                size, checksum = size + len(piece), zlib.crc32(piece, checksum)
    except FileNotFoundError:
        return -1, 0
    return size, checksum
