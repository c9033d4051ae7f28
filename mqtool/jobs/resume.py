"""Resume files: how far a run has come, so that the next one continues there.

There are two forms. A run whose progress is one state replaces a `ResumeFile`; a run of many independent tasks
appends a line for each to a `TaskLog`. Only the run knows what a state or a result contains.
"""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Generic, Self, TypeVar

from mqtool.errors import ConfigFileError, UsageError
from mqtool.jobs.atomic import leftovers, replace_file

Result = TypeVar("Result")

_LONGEST_HEAD = 1 << 12
"""Bytes of the first line at most: what lies in another kind of file may have no end of line."""


def build(version: int, fields: Mapping[str, Any], indent: int | None = None) -> bytes:
    """Returns a state as bytes."""
    return json.dumps({"version": version, **fields}, indent=indent).encode()


def parse(data: bytes, version: int, what: str, where: Path | str) -> dict[str, Any]:
    """Returns the fields of a state without its version; `what` is the run with its article; raises ConfigFileError."""
    try:
        return fields_of(json.loads(data), version, what, where)
    except (ValueError, RecursionError) as error:
        raise not_the_state(what, where, error) from error


def fields_of(document: Any, version: int, what: str, where: Path | str) -> dict[str, Any]:
    """Returns the fields of a state inside a larger document; raises like `parse`."""
    if not isinstance(document, dict) or "version" not in document:
        raise not_the_state(what, where, "expected a JSON object with a version")
    if document["version"] != version:
        reason = f"expected version {version}, found {document['version']!r}: another release of mqtool wrote it"
        raise not_the_state(what, where, reason)
    return {name: value for name, value in document.items() if name != "version"}


def not_the_state(what: str, where: Path | str, reason: object) -> ConfigFileError:
    """Returns the error for a file that is not such a state."""
    return ConfigFileError(f"is not the state of {what}: {reason}. Name another file, or a new one", where)


class ResumeFile:
    """The state of one run, replaced as a whole."""

    def __init__(self, path: Path, version: int, what: str) -> None:
        """Takes the arguments of `parse`; does not access the file yet."""
        self.path = path
        self._version, self._what = version, what

    def load(self) -> dict[str, Any] | None:
        """Returns what was saved, None if there is no file.

        Raises ConfigFileError if it is not such a state, which `save` would destroy; OSError.
        """
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return None
        return parse(data, self._version, self._what, self.path)

    def save(self, fields: Mapping[str, Any]) -> None:
        """Replaces the state; durable on return; raises OSError if it was not written."""
        replace_file(self.path, build(self._version, fields))

    def remove(self) -> None:
        """Deletes the file, if it exists."""
        for path in (self.path, *leftovers(self.path)):
            path.unlink(missing_ok=True)

    def refuse(self, reason: object) -> ConfigFileError:
        """Returns the error for fields that do not belong to such a run."""
        return not_the_state(self._what, self.path, reason)


class TaskLog(Generic[Result]):
    """Results of finished tasks: a line of JSON for each, after a header line that states what they are results of.

    Attributes:
        done: results of an earlier run with the same header line, by key.
    """

    def __init__(self, path: Path, head: Mapping[str, str], what: str, decode: Callable[[Any], Result]) -> None:
        """Opens or creates the file. An incomplete last line is cut off.

        `head` is what the results are of; its first key identifies the kind of file. If values have changed, the file
        is started over. `decode` returns a result from its JSON. Raises UsageError if it is another kind of file;
        OSError.
        """
        self.done: dict[str, Result] = {}
        self._what, self._decode = what, decode
        kept = self._read(path, dict(head)) if path.exists() else 0
        self._file = open_after(path, kept)
        if not kept:
            self._write(dict(head))

    def _read(self, path: Path, head: dict[str, str]) -> int:
        """Reads finished results; returns the number of bytes to keep, 0 if they are results of something else."""
        with path.open("rb") as file:
            first = file.readline(_LONGEST_HEAD)
            if first and self._head_of(first, path, next(iter(head))) != head:
                return 0
            kept = len(first) if first.endswith(b"\n") else 0
            for line in file:
                if not line.endswith(b"\n"):
                    break
                try:
                    key, result = json.loads(line)
                    self.done[str(key)] = self._decode(result)
                except (ValueError, KeyError, TypeError, RecursionError) as error:
                    reason = f"contains data that {self._what} did not write; remove it, or name another file"
                    raise UsageError(f"{path} position {kept}: {reason}") from error
                kept += len(line)
        return kept

    def _head_of(self, line: bytes, path: Path, key: str) -> object:
        try:
            head = json.loads(line)
        except (ValueError, RecursionError):
            head = None
        if not isinstance(head, dict) or key not in head:
            raise UsageError(f"{path}: is not a state file of {self._what}; name a file that does not exist yet")
        return head

    def add(self, key: str, result: Any) -> None:
        """Appends one result, already JSON. It survives the end of the process, but not a power cut."""
        self._write([key, result])

    def _write(self, line: object) -> None:
        self._file.write(json.dumps(line).encode() + b"\n")
        self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()


def open_after(path: Path, kept: int) -> IO[bytes]:
    """Opens a file to write after its first `kept` bytes, cuts off the rest; raises UsageError if it has fewer."""
    file = path.open("r+b" if path.exists() else "xb")
    size = file.seek(0, os.SEEK_END)
    if size < kept:
        file.close()
        reason = f"expected at least {kept} bytes, which the previous run wrote, found {size}"
        raise UsageError(f"{path}: {reason}; put the file back, or give a new state")
    file.seek(kept)
    file.truncate()
    return file
