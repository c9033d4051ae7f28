"""Exit codes, and the table that turns an exception into an exit code and one line on stderr.

Documented in docs/exit-codes.md; a test compares that page with this table.
"""

import contextlib
import enum
import re
from pathlib import Path
from typing import NamedTuple

from mqtool import errors


class ExitCode(enum.IntEnum):
    """Exit codes of the process."""

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
    ExitCode.NO: "the answer is no: damage or inconsistency found, result incomplete because of it, or nothing found",
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
    """SIGTERM arrived; like KeyboardInterrupt, only `run` catches it."""


class NotFoundError(errors.MqtoolError):
    """The requested item is not in the store: a negative answer rather than a failure."""


class Rule(NamedTuple):
    """One row of the table."""

    error: type[BaseException]  # exceptions of this class and its subclasses, unless an earlier row took them
    code: ExitCode  # exit code
    kind: str  # stable name, `error.kind` in JSON output
    hint: str = ""  # what to do; appended unless the message contains an instruction


_REPORT = "this is a bug in mqtool; please report it with the output of --debug"

RULES = (
    Rule(errors.NothingToChangeError, ExitCode.NO, "nothing-to-change"),
    Rule(errors.UsageError, ExitCode.USAGE, "usage", "correct the command; --help lists its arguments and options"),
    Rule(NotFoundError, ExitCode.NO, "not-found", "check the address; `mqtool info STORE` lists what the store has"),
    Rule(errors.NothingFoundError, ExitCode.NO, "nothing-found", "restore the store from a replica or backup"),
    Rule(errors.NotAStoreError, ExitCode.REFUSED, "not-a-store", "give the root of a store (it contains commitlog/)"),
    Rule(errors.StoreLockedError, ExitCode.REFUSED, "locked", "stop the broker first, or work on a copy"),
    Rule(errors.UnavailableError, ExitCode.REFUSED, "unavailable", "install what is missing, then run it again"),
    Rule(errors.UnsupportedFormatError, ExitCode.REFUSED, "unsupported", "see `mqtool help formats`"),
    Rule(errors.ConfigFileError, ExitCode.USAGE, "config-file", "correct the file, or leave --config out"),
    Rule(
        errors.LayoutError,
        ExitCode.REFUSED,
        "layout",
        "give the broker's own keys with --config broker.conf",
    ),
    Rule(errors.ReadOnlyStoreError, ExitCode.BUG, "bug", _REPORT),
    Rule(errors.StoreClosedError, ExitCode.BUG, "bug", _REPORT),
    Rule(errors.ExportError, ExitCode.REFUSED, "export", "export into a new directory"),
    Rule(
        errors.RefusedError,
        ExitCode.REFUSED,
        "refused",
        "nothing was changed; run `mqtool verify STORE` to see its state",
    ),
    Rule(errors.CorruptionError, ExitCode.NO, "corruption", "run `mqtool verify STORE` to see all damage"),
    Rule(errors.PermissionDeniedError, ExitCode.REFUSED, "permission", "run this as a user who may read it"),
    Rule(
        errors.UnreadableError,
        ExitCode.IO_ERROR,
        "io",
        "run this as a user who can read it, or copy what is readable to another disk",
    ),
    Rule(errors.StoreError, ExitCode.IO_ERROR, "io", "check the path, its permissions and the disk"),
    Rule(errors.FormatError, ExitCode.NO, "format", "run `mqtool verify STORE` to see all damage"),
    Rule(errors.WorkerError, ExitCode.PEER, "worker", "check the workers' memory and logs, then run the command again"),
    Rule(errors.MessageRejectedError, ExitCode.REFUSED, "rejected", "correct the message, then run the command again"),
    Rule(errors.ProtocolError, ExitCode.PEER, "protocol", "check that the address is a RocketMQ port"),
    Rule(KeyboardInterrupt, ExitCode.INTERRUPTED, "interrupted"),
    Rule(Terminated, ExitCode.TERMINATED, "terminated"),
    Rule(BrokenPipeError, ExitCode.PIPE_CLOSED, "pipe-closed"),
    Rule(ConnectionError, ExitCode.PEER, "connection", "check the address, and that the peer is running"),
    Rule(PermissionError, ExitCode.IO_ERROR, "io", "check its owner and permissions"),
    Rule(OSError, ExitCode.IO_ERROR, "io", "check the path and the device"),
    Rule(BaseException, ExitCode.BUG, "bug", _REPORT),
)

GATE_HINTS = {
    "space": "free disk space, then run the command again",
    "nobody-writes": "stop that process, then run the command again",
    "lock": "move it out of the store, then run the command again",
    "store": "run the command with the store that the plan or journal names, or run `mqtool plan` again",
    "unreadable": "run this as a user who can read it, or copy what is readable to another disk",
    "read-only": "check owner and mount of the directory",
    "file-system": "mount the store on one file system, or work on a copy",
    "journal": "run `mqtool verify STORE` to see the state of the store",
    "quarantine": "run `mqtool discard-undo STORE` or `mqtool undo STORE` first",
    "path": "name a regular file or directory that is not a link",
    "plan-unreadable": "run `mqtool plan` again",
    "plan-version": "run `mqtool plan` again",
    "result": "the old files are in place; run `mqtool plan` again",
    "target": "name a new file or directory",
    "backup": "run `mqtool restore BACKUP --snapshots` to see its snapshots",
    "backup-damaged": "restore another snapshot (`mqtool restore BACKUP --snapshots`), or take a new backup",
}
"""What to do about a refused change, by its gate, where the message does not say so itself."""

_INSTRUCTS = (
    r"`?\bmqtool [a-z]|--[a-z-]+ |(?:[;:,.?]|\bor|\bto|^) (?:then )?"
    r"(?:add|back up|cast|check|choose|confirm|convert|copy|cut|export|free|give|install|leave|let|look|mount|move|name"
    r"|please report|open|plan|put|rebuild|restore|run|salvage|see|select|set|stop|take|try|use|wait|write|correct)\b"
    r"|expected .*, found|expected one of|known: |expected [A-Z\[]"
)
"""What a message with an instruction of its own looks like; anything else gets the hint of its rule."""

QUIET = (ExitCode.INTERRUPTED, ExitCode.PIPE_CLOSED, ExitCode.TERMINATED)
"""Ends that print nothing: whoever caused them knows."""


class Failure(NamedTuple):
    """An exception, ready to be shown."""

    code: ExitCode
    kind: str
    message: str
    path: str | None = None

    def as_json(self) -> dict[str, str]:
        """Returns the `error` object of JSON output."""
        value = {"kind": self.kind, "message": self.message}
        return value if self.path is None else {**value, "path": self.path}


def failure_of(error: BaseException) -> Failure:
    """Returns the failure for an exception."""
    rule = next(rule for rule in RULES if isinstance(error, rule.error))
    path = _path_of(error)
    message = _message_of(error, rule)
    return Failure(rule.code, rule.kind, message, path)


def _message_of(error: BaseException, rule: Rule) -> str:
    if isinstance(error, errors.NotAStoreError) and (of_another := _store_of_another_system(error.path)):
        message = f"{error.path}: {of_another}"
    elif isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        message = f"{where}{error.strerror}"
    else:
        message = str(error)
    if rule.code is ExitCode.BUG:
        message = f"{type(error).__name__}: {message}" if message else type(error).__name__
    hint = GATE_HINTS.get(error.gate, rule.hint) if isinstance(error, errors.RefusedError) else rule.hint
    return f"{message}; {hint}" if hint and not says_what_to_do(message) else message


def says_what_to_do(message: str) -> bool:
    """Whether a message contains an instruction, or states what was expected instead."""
    return re.search(_INSTRUCTS, message, re.IGNORECASE) is not None


def _store_of_another_system(path: Path) -> str:
    """Returns what to say about a path that is a store of another system, or near one; otherwise ""."""
    from mqtool.siblings.registry import root_near

    with contextlib.suppress(OSError, errors.StoreError):  # the path cannot be looked at: the first error says more
        near = root_near(path)
        if near is not None:
            kind, root = near
            if root != path:
                words = f"is not a store; did you mean {root}, a store of kind {kind.name}?"
                return words if path.exists() else ""
            return (
                f"is a store of kind {kind.name}, and this command is for stores of RocketMQ; see `mqtool help formats`"
            )
    return ""


def _path_of(error: BaseException) -> str | None:
    path = error.filename if isinstance(error, OSError) else getattr(error, "path", None)
    return None if path is None else str(path)
