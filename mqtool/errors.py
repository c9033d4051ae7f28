"""The exceptions of mqtool.

```
MqtoolError
├── FormatError            bytes do not fit the layout: layout, field, position
│   ├── TruncatedError     the bytes end before the layout does
│   ├── BadMagicError      the magic code is not one of the layout's
│   └── ChecksumError      stored and computed checksums differ
├── StoreError             path
│   ├── UnreadableError    the operating system refuses to read or list a file or directory
│   ├── NotAStoreError     the path contains no part of a message store
│   ├── NothingFoundError  the files can be read, but do not contain what was requested
│   ├── LayoutError        the files contradict each other or the given configuration
│   ├── StoreLockedError   another process holds the store's lock
│   ├── ReadOnlyStoreError a write was requested on a store opened for reading
│   ├── StoreClosedError   the store was used after close
│   ├── ConfigFileError    a configuration file cannot be read
│   ├── ExportError        an export cannot continue: the log, directory or shape differs from its state
│   ├── RefusedError       gate; a change is not carried out: its plan is stale, the store in use, space short
│   └── CorruptionError    physical offset, reason; raised from a FormatError
├── UsageError             an argument of the caller is wrong: a range, a filter, an option
│   ├── PortInUseError     port; another process listens on the address
│   └── NothingToChangeError   a plan was requested, but the store is already in the state the plan would produce
├── UnavailableError       a required program or library is not installed
├── UnsupportedFormatError a kind of file or record that is recognised but not supported
├── WorkerError            a worker process or cluster died, or did not accept its work
├── MessageRejectedError   the message itself cannot be stored
└── ProtocolError
    ├── LocalProtocolError   this side was about to send an invalid frame
    └── RemoteProtocolError  the peer sent an invalid frame; the connection is closed
```

An expected answer (no message, offset too small, a finding, damage) is a value, never an exception. Messages state
what was expected, what was found, and what to do next.
"""

from pathlib import Path


class MqtoolError(Exception):
    """Base class of all errors that mqtool raises deliberately; they can be pickled and passed between processes."""

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (type(self), self.args, self.__dict__)


def _restore(kind: type[MqtoolError], args: tuple[object, ...], attributes: dict[str, object]) -> MqtoolError:
    """Recreates a pickled error. Its constructor cannot be called, since it takes other arguments than `args`."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error


class FormatError(MqtoolError):
    """Bytes do not fit a layout.

    Attributes:
        layout: name of the layout.
        field: path of the failing field inside the layout, or "" for the whole layout.
        position: where the layout starts in the bytes that were passed.
        reason: what does not fit, without the place.
    """

    def __init__(self, message: str, *, layout: str = "", field: str = "", position: int = 0) -> None:
        where = f"{layout or 'bytes'}{'.' + field if field else ''} at position {position}"
        super().__init__(f"{where}: {message}")
        self.layout = layout
        self.field = field
        self.position = position
        self.reason = message


class TruncatedError(FormatError):
    """The bytes end before the layout does."""


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
    """The operating system refuses to read an existing file or directory, so its contents are unknown."""


class PermissionDeniedError(UnreadableError):
    """This user may not read a file or directory; another one may."""


class NotAStoreError(StoreError):
    """The path contains no part of a message store."""


class NothingFoundError(StoreError):
    """The files can be read, but do not contain what was requested."""


class LayoutError(StoreError):
    """The files contradict each other or the given configuration."""


class StoreLockedError(StoreError):
    """Another process holds the store's lock."""


class ReadOnlyStoreError(StoreError):
    """A write was requested on a store that is open for reading only."""


class StoreClosedError(StoreError):
    """The store was used after it was closed."""


class ConfigFileError(StoreError):
    """A configuration file cannot be parsed."""


class ExportError(StoreError):
    """An export cannot continue or be read, because log, directory or shape of the data differ from its state."""


class RefusedError(StoreError):
    """A change of a store was refused; nothing was changed.

    Attributes:
        gate: stable name of the precondition that failed, e.g. "plan-stale"; docs/repair.md lists them.
    """

    def __init__(self, gate: str, message: str, path: str | Path) -> None:
        super().__init__(f"{gate}: {message}", path)
        self.gate = gate


class CorruptionError(StoreError):
    """The requested record, at a physical offset of the CommitLog, is damaged."""

    def __init__(self, message: str, path: str | Path, physical_offset: int) -> None:
        super().__init__(f"physical offset {physical_offset}: {message}", path)
        self.physical_offset = physical_offset


class UsageError(MqtoolError):
    """A range, filter or option is invalid; nothing was done."""


class PortInUseError(UsageError):
    """Another process listens on an address."""

    def __init__(self, address: str, port: int) -> None:
        super().__init__(f"cannot listen on {address}: the port is in use")
        self.port = port


class NothingToChangeError(UsageError):
    """A plan was requested, but the store is already in the state that the plan would produce."""


class UnavailableError(MqtoolError):
    """A required program or library is not installed."""


class UnsupportedFormatError(MqtoolError):
    """A file or record of a known kind that this release does not support."""


class WorkerError(MqtoolError):
    """A worker process or cluster died, or did not accept its work."""


class MessageRejectedError(MqtoolError):
    """The message cannot be stored: too large, an illegal topic, properties too long."""


class ProtocolError(MqtoolError):
    """The remoting protocol was violated."""


class LocalProtocolError(ProtocolError):
    """This side was about to send an invalid frame."""


class RemoteProtocolError(ProtocolError):
    """The peer sent an invalid frame; the connection is closed."""
