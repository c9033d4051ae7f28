"""The changes that can be requested, one class for each verb of `mqtool plan`, and their JSON form."""

from typing import Any, NoReturn

import msgspec
from msgspec import Struct, structs

from mqtool.errors import UsageError
from mqtool.store.groups.offset_moves import Move, move_from_json
from mqtool.store.known_losses import LostOffsets
from mqtool.values import asdict


class RebuildQueues(Struct, frozen=True):
    """Rebuild queues, with their extensions, from the CommitLog."""

    topics: tuple[str, ...] = ()  # globs; empty for all topics
    queue_id: int | None = None  # only this queue of each topic


class RebuildIndex(Struct, frozen=True):
    """Rebuild index files from the CommitLog."""

    file: str | None = None  # only this one; the one before it must be intact


class RebuildMetadata(Struct, frozen=True):
    """Complete config/*.json and the checkpoint from the log; what can be read of them is kept."""

    files: tuple[str, ...] = ()  # only these, e.g. "config/topics.json", "checkpoint"; empty for all.


class RebuildTimer(Struct, frozen=True):
    """Rebuild timer wheel, timer log and config/timercheck from the timer messages in the CommitLog."""


class Undelete(Struct, frozen=True):
    """Restore deleted topics from the log: their configuration, and their queues with the old queue offsets."""

    topics: tuple[str, ...]  # names


class Truncate(Struct, frozen=True):
    """Cut off the end of the log for good: later bytes, and the units that point there, become zeros."""

    at: int  # physical offset of the first record to remove; or the end of the log, to remove only what follows it


class Redact(Struct, frozen=True):
    """Blank the bodies of records. Lengths do not change."""

    physical_offsets: tuple[int, ...]  # of the records


class Trim(Struct, frozen=True):
    """Set the oldest segments aside, with the files of queues and index that point only there."""

    before: int  # physical offset; segments that end at or before it are set aside


class Purge(Struct, frozen=True):
    """Remove all messages of some topics. Records of other topics are moved together, past the old end of the log."""

    topics: tuple[str, ...]  # names


class SetAside(Struct, frozen=True):
    """Move files out of the way, for instance files that keep a broker from starting."""

    files: tuple[str, ...]  # relative to the root


class RenameSegments(Struct, frozen=True):
    """Rename CommitLog files to match the physical offsets of their records."""

    files: tuple[str, ...]  # relative to the root, under their present names


class Pad(Struct, frozen=True):
    """Bring segments to the length of the others, which ends with zeros, because a broker refuses any other length."""

    files: tuple[str, ...]  # relative to the root


class RecordLosses(Struct, frozen=True):
    """Record messages that are lost already, where other changes remove what proves them: `verify` expects them."""

    lost: tuple[LostOffsets, ...] | None = None  # the messages; None to verify the store for them


class MoveOffsets(Struct, frozen=True):
    """Set positions of consumer groups to other values."""

    moves: tuple[Move, ...]  # one for each queue of a group


class Recover(Struct, frozen=True):
    """Do what a broker does on startup, followed by a clean shutdown."""

    release: str  # whose rules are followed, "4.9" or "5.5"
    mode: str  # "careful" or "compatible", see `engine.RecoveryMode`
    time: int  # ms since the epoch; names of new files depend on it


Change = (
    RebuildQueues
    | RebuildIndex
    | RebuildMetadata
    | RebuildTimer
    | Undelete
    | Truncate
    | Redact
    | Trim
    | Purge
    | SetAside
    | RenameSegments
    | Pad
    | RecordLosses
    | MoveOffsets
    | Recover
)


VERBS: dict[str, type[Change]] = {
    "rebuild-consumequeue": RebuildQueues,
    "rebuild-index": RebuildIndex,
    "rebuild-metadata": RebuildMetadata,
    "rebuild-timer": RebuildTimer,
    "undelete": Undelete,
    "truncate": Truncate,
    "redact": Redact,
    "trim": Trim,
    "purge": Purge,
    "set-aside": SetAside,
    "rename-segments": RenameSegments,
    "pad": Pad,
    "record-losses": RecordLosses,
    "offsets": MoveOffsets,
    "recover": Recover,
}
"""By their names in plans."""

_LISTS_OF_NUMBERS = ("physical_offsets",)
_NUMBERS = ("queue_id", "at", "before", "time")
_CHOICES = {"release": ("4.9", "5.5"), "mode": ("careful", "compatible")}


def verb_of(change: Change) -> str:
    """Returns the name of a change in plans."""
    return next(name for name, kind in VERBS.items() if type(change) is kind)


def change_to_json(change: Change) -> dict[str, Any]:
    """Returns a change as plans store it."""
    values: dict[str, Any] = {"verb": verb_of(change), **structs.asdict(change)}
    if isinstance(change, RecordLosses):
        values["lost"] = msgspec.to_builtins(change.lost)
    if isinstance(change, MoveOffsets):
        values["moves"] = tuple(asdict(move) for move in change.moves)
    return {"verb": verb_of(change)} | {
        name: list(value) if type(value) is tuple else value for name, value in values.items()
    }


def change_from_json(value: Any) -> Change:
    """Reads a change from a plan; raises UsageError for an unknown verb, or a value of a wrong type."""
    if not isinstance(value, dict) or value.get("verb") not in VERBS:
        raise UsageError(f"expected one of {', '.join(VERBS)}, found {str(value)[:60]!r}")
    given = {name: _value(name, member) for name, member in value.items() if name != "verb"}
    try:
        return VERBS[value["verb"]](**given)
    except TypeError as error:
        raise UsageError(f"{value['verb']}: {error}") from error


def _value(name: str, value: Any) -> Any:
    if name == "lost":
        try:
            return msgspec.convert(value, tuple[LostOffsets, ...] | None)
        except msgspec.ValidationError:
            return _refused(name, value)
    if name == "moves":
        return tuple(move_from_json(member) for member in value) if isinstance(value, list) else _refused(name, value)
    if isinstance(value, list):
        kind: type = int if name in _LISTS_OF_NUMBERS else str
        if all(type(member) is kind for member in value):
            return tuple(value)
    elif name in _NUMBERS:
        if type(value) is int or (value is None and name == "queue_id"):
            return value
    elif name in _CHOICES:
        if value in _CHOICES[name]:
            return value
    elif name == "file" and (value is None or isinstance(value, str)):
        return value
    return _refused(name, value)


def _refused(name: str, value: Any) -> NoReturn:
    raise UsageError(f"{name}: found {str(value)[:60]!r}")
