"""The one exception tree.

```
MqtoolError
├── FormatError            bytes do not fit the layout: layout, field, position
│   ├── TruncatedError     the bytes ended before the layout did
│   ├── BadMagicError      another magic code than the layout's
│   └── ChecksumError      stored and computed checksums differ
├── StoreError             path
│   ├── UnreadableError    the system refuses to read or list what is there
│   ├── NotAStoreError     nothing of a message store is there
│   ├── NothingFoundError  the files can be read and hold nothing of what was asked for
│   ├── LayoutError        the files contradict each other or the given configuration
│   ├── StoreLockedError   another process holds the store
│   ├── ReadOnlyStoreError a write was asked of a store opened for reading
│   ├── StoreClosedError   used after close
│   ├── ConfigFileError    a configuration file cannot be read
│   ├── ExportError        an export cannot continue: another log, another directory, another shape
│   ├── RefusedError       gate; a change is not carried out: its plan is stale, the store in use, space short
│   └── CorruptionError    physical offset, reason; raised from a FormatError
├── UsageError             the caller's own words are wrong: a range, a filter, an option
│   └── NothingToChangeError   a plan was asked for, and the store is already as the plan would make it
├── UnavailableError       something that is needed is not installed
├── UnsupportedFormatError a kind of file or record that is recognised but not handled
├── WorkerError            a process or cluster that was given work died, or did not take it
├── MessageRejectedError   the message itself cannot be stored
└── ProtocolError
    ├── LocalProtocolError   we were about to send something illegal
    └── RemoteProtocolError  the peer sent it; the connection is closed
```

An expected answer (no message, offset too small, a finding, damage) is a value, never an exception.
Messages say what was expected, what was found, and what to do next.
"""

from pathlib import Path


class MqtoolError(Exception):
    """Base of all errors that mqtool raises on purpose; they pass between processes as they are."""

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (type(self), self.args, self.__dict__)


def _restore(kind: type[MqtoolError], args: tuple[object, ...], attributes: dict[str, object]) -> MqtoolError:
    """Makes an error again from its words; its constructor would want what they were made of."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error


class FormatError(MqtoolError):
    """Bytes do not fit a layout.

    Attributes:
        layout: name of the layout.
        field: path of the failing field inside the layout, or "" for the whole.
        position: where the layout starts in the bytes that were given.
    """

    def __init__(self, message: str, *, layout: str = "", field: str = "", position: int = 0) -> None:
        where = f"{layout or 'bytes'}{'.' + field if field else ''} at position {position}"
        super().__init__(f"{where}: {message}")
        self.layout = layout
        self.field = field
        self.position = position


class TruncatedError(FormatError):
    """The bytes ended before the layout did."""


class BadMagicError(FormatError):
    """The magic code is not one of the layout's."""


class ChecksumError(FormatError):
    """A stored checksum differs from the computed one."""


class StoreError(MqtoolError):
    """Something is wrong with a store's files.

    Attributes:
        path: the file or directory concerned.
        reason: what is wrong with it, without the path.
    """

    def __init__(self, message: str, path: str | Path) -> None:
        super().__init__(f"{path}: {message}")
        self.path = Path(path)
        self.reason = message


class UnreadableError(StoreError):
    """Something is there, and the system does not let it be read: what it holds is unknown."""


class NotAStoreError(StoreError):
    """Nothing of a message store is at the path."""


class NothingFoundError(StoreError):
    """The files can be read, and hold nothing of what was asked for."""


class LayoutError(StoreError):
    """The files contradict each other, or the configuration that was given."""


class StoreLockedError(StoreError):
    """Another process holds the store's lock."""


class ReadOnlyStoreError(StoreError):
    """A write was asked of a store that is open for reading only."""


class StoreClosedError(StoreError):
    """The store was used after it had been closed."""


class ConfigFileError(StoreError):
    """A configuration file cannot be understood."""


class ExportError(StoreError):
    """An export cannot continue at its state: the log, the directory or the shape is another one."""


class RefusedError(StoreError):
    """A change of a store is not carried out; nothing was changed.

    Attributes:
        gate: stable name of what was not met, e.g. "plan-stale"; docs/repair.md lists them.
    """

    def __init__(self, gate: str, message: str, path: str | Path) -> None:
        super().__init__(f"{gate}: {message}", path)
        self.gate = gate


class CorruptionError(StoreError):
    """A record that was asked for is damaged.

    Attributes:
        physical_offset: where in the CommitLog.
    """

    def __init__(self, message: str, path: str | Path, physical_offset: int) -> None:
        super().__init__(f"physical offset {physical_offset}: {message}", path)
        self.physical_offset = physical_offset


class UsageError(MqtoolError):
    """A range, filter or option does not make sense; nothing was done."""


class NothingToChangeError(UsageError):
    """A plan was asked for, and the store is already as the plan would make it."""


class UnavailableError(MqtoolError):
    """Something that was asked for needs a program or library that is not there."""


class UnsupportedFormatError(MqtoolError):
    """A file or record of a known kind that this release does not handle."""


class WorkerError(MqtoolError):
    """A process or a cluster that was given work died, or did not take it."""


class MessageRejectedError(MqtoolError):
    """The message cannot be stored: too large, an illegal topic, properties too long."""


class ProtocolError(MqtoolError):
    """The remoting protocol was violated."""


class LocalProtocolError(ProtocolError):
    """We were about to send something illegal."""


class RemoteProtocolError(ProtocolError):
    """The peer sent something illegal; the connection is closed."""
