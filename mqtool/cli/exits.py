"""Exit codes, and the one table that turns an exception into an exit code and one line on stderr.

Documented in docs/exit-codes.md; a test compares that page with this table.
"""

import contextlib
import enum
from dataclasses import dataclass
from pathlib import Path

from mqtool import errors
from mqtool.siblings.registry import recognise


class ExitCode(enum.IntEnum):
    """What the process tells its caller."""

    OK = 0
    NO = 1
    USAGE = 2
    WARNINGS = 3
    REFUSED = 4
    STOPPED_EARLY = 5
    PEER = 6
    BUG = 70
    IO_ERROR = 74
    INTERRUPTED = 130
    PIPE_CLOSED = 141
    TERMINATED = 143


MEANINGS = {
    ExitCode.OK: "done; nothing wrong",
    ExitCode.NO: "the answer is no: damage or inconsistency found, a result incomplete because of it, or nothing found",
    ExitCode.USAGE: "wrong usage; nothing was done",
    ExitCode.WARNINGS: "only warnings found, where --fail-on warning asks for them",
    ExitCode.REFUSED: "refused for safety: the input is not a store, the store is locked or in use, a gate is not met",
    ExitCode.STOPPED_EARLY: "stopped early, resumable",
    ExitCode.PEER: "network or peer failure",
    ExitCode.BUG: "a bug in mqtool: an unexpected exception",
    ExitCode.IO_ERROR: "the operating system refused a read or a write",
    ExitCode.INTERRUPTED: "interrupted (Ctrl-C)",
    ExitCode.PIPE_CLOSED: "the reader of stdout went away",
    ExitCode.TERMINATED: "terminated (SIGTERM)",
}


class Terminated(BaseException):
    """SIGTERM arrived; like KeyboardInterrupt, nothing but `run` catches it."""


class NotFoundError(errors.MqtoolError):
    """What was asked for is not in the store: an answer, and the answer is no."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table.

    Attributes:
        error: exceptions of this class and its subclasses, unless an earlier row took them.
        code: exit code.
        kind: stable name, `error.kind` in JSON output.
        hint: what to do, where the exception's own message does not say.
    """

    error: type[BaseException]
    code: ExitCode
    kind: str
    hint: str = ""


_REPORT = "this is a bug in mqtool: please report it with the output of --debug"

RULES = (
    Rule(errors.NothingToChangeError, ExitCode.NO, "nothing-to-change"),
    Rule(errors.UsageError, ExitCode.USAGE, "usage"),
    Rule(NotFoundError, ExitCode.NO, "not-found"),
    Rule(errors.NothingFoundError, ExitCode.NO, "nothing-found"),
    Rule(errors.NotAStoreError, ExitCode.REFUSED, "not-a-store"),
    Rule(errors.StoreLockedError, ExitCode.REFUSED, "locked", "stop the broker first, or work on a copy"),
    Rule(errors.UnavailableError, ExitCode.REFUSED, "unavailable"),
    Rule(errors.UnsupportedFormatError, ExitCode.REFUSED, "unsupported"),
    Rule(errors.ConfigFileError, ExitCode.USAGE, "config-file"),
    Rule(errors.LayoutError, ExitCode.REFUSED, "layout", "give the broker's own sizes with --config broker.conf"),
    Rule(errors.ReadOnlyStoreError, ExitCode.BUG, "bug", _REPORT),
    Rule(errors.StoreClosedError, ExitCode.BUG, "bug", _REPORT),
    Rule(errors.ExportError, ExitCode.REFUSED, "export"),
    Rule(errors.RefusedError, ExitCode.REFUSED, "refused"),
    Rule(errors.CorruptionError, ExitCode.NO, "corruption"),
    Rule(
        errors.UnreadableError,
        ExitCode.IO_ERROR,
        "io",
        "what it holds is unknown: run this as a user who may read it, or copy what can be read to another disk",
    ),
    Rule(errors.StoreError, ExitCode.IO_ERROR, "io"),
    Rule(errors.FormatError, ExitCode.NO, "format"),
    Rule(errors.WorkerError, ExitCode.PEER, "worker"),
    Rule(errors.MessageRejectedError, ExitCode.REFUSED, "rejected"),
    Rule(errors.ProtocolError, ExitCode.PEER, "protocol"),
    Rule(KeyboardInterrupt, ExitCode.INTERRUPTED, "interrupted"),
    Rule(Terminated, ExitCode.TERMINATED, "terminated"),
    Rule(BrokenPipeError, ExitCode.PIPE_CLOSED, "pipe-closed"),
    Rule(ConnectionError, ExitCode.PEER, "connection"),
    Rule(PermissionError, ExitCode.IO_ERROR, "io", "check who may read it"),
    Rule(OSError, ExitCode.IO_ERROR, "io", "check the path and the device"),
    Rule(BaseException, ExitCode.BUG, "bug", _REPORT),
)

QUIET = (ExitCode.INTERRUPTED, ExitCode.PIPE_CLOSED, ExitCode.TERMINATED)
"""Ends that print nothing: whoever caused them knows."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception, ready to be shown."""

    code: ExitCode
    kind: str
    message: str
    path: str | None = None

    def as_json(self) -> dict[str, str]:
        """Returns the `error` object of JSON output."""
        found = {"kind": self.kind, "message": self.message}
        return found if self.path is None else {**found, "path": self.path}


def failure_of(error: BaseException) -> Failure:
    """Finds an exception's row and words."""
    rule = next(rule for rule in RULES if isinstance(error, rule.error))
    path = _path_of(error)
    message = _message_of(error, rule)
    return Failure(rule.code, rule.kind, message, path)


def _message_of(error: BaseException, rule: Rule) -> str:
    if isinstance(error, errors.NotAStoreError) and (kind := _kind_of(error.path)):
        words = f"{error.path}: is a store of kind {kind}, and this is for stores of RocketMQ; see mqtool formats"
    elif isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        words = f"{where}{error.strerror}"
    else:
        words = str(error)
    if rule.code is ExitCode.BUG:
        words = f"{type(error).__name__}: {words}" if words else type(error).__name__
    return f"{words}; {rule.hint}" if rule.hint else words


def _kind_of(path: Path) -> str:
    """Returns the kind of store that is at a path if it is none of RocketMQ's, else nothing."""
    with contextlib.suppress(OSError):  # the path cannot be looked at: the first error says more
        kind = recognise(path)
        return "" if kind is None else kind.name
    return ""


def _path_of(error: BaseException) -> str | None:
    found = error.filename if isinstance(error, OSError) else getattr(error, "path", None)
    return None if found is None else str(found)
