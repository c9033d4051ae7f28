"""The changes that can be requested: one value per verb, in the form of a plan."""

from dataclasses import asdict, dataclass, fields
from typing import Any, NoReturn

from mqtool.errors import UsageError
from mqtool.store.offset_moves import Move, move_from_json


@dataclass(frozen=True, slots=True)
class RebuildQueues:
    """Queues, with their extensions, rebuilt from the CommitLog, in place.

    Attributes:
        topics: globs; empty for all.
        queue_id: only this one of each topic.
    """

    topics: tuple[str, ...] = ()
    queue_id: int | None = None


@dataclass(frozen=True, slots=True)
class RebuildIndex:
    """Index files rebuilt from the CommitLog.

    Attributes:
        file: only this one; the one before it must be intact.
    """

    file: str | None = None


@dataclass(frozen=True, slots=True)
class RebuildMetadata:
    """config/*.json and the checkpoint, kept as far as they can be read and completed from the log.

    Attributes:
        files: only these, e.g. "config/topics.json", "checkpoint"; empty for all.
    """

    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RebuildTimer:
    """Timer wheel, timer log and config/timercheck rebuilt from the parked messages of the CommitLog."""


@dataclass(frozen=True, slots=True)
class Undelete:
    """Topics brought back from the log: their configuration, and their queues with the old queue offsets.

    Attributes:
        topics: names.
    """

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Truncate:
    """The end of the log cut off, so that it stays cut: what followed becomes zeros, and so do its units.

    Attributes:
        at: physical offset of the first record to remove, or of the end of the log: then only what follows is removed.
    """

    at: int


@dataclass(frozen=True, slots=True)
class Redact:
    """Bodies blanked, each as long as before.

    Attributes:
        physical_offsets: of the records.
    """

    physical_offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Trim:
    """The oldest segments set aside, and what of queues and index only leads there.

    Attributes:
        before: physical offset; segments that end at or before it go.
    """

    before: int


@dataclass(frozen=True, slots=True)
class Purge:
    """All messages of some topics removed; those of other topics move together, past the old end of the log.

    Attributes:
        topics: names.
    """

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SetAside:
    """Files moved out of the way, for instance such as keep a broker from starting.

    Attributes:
        files: below the root.
    """

    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RenameSegments:
    """CommitLog files given the names that the physical offsets of their records ask for.

    Attributes:
        files: below the root, under their present names.
    """

    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pad:
    """Segments that are too short made as long as the others, with zeros: a broker starts on no other.

    Attributes:
        files: below the root.
    """

    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MoveOffsets:
    """Positions of consumer groups set to other values.

    Attributes:
        moves: one for each queue of a group.
    """

    moves: tuple[Move, ...]


@dataclass(frozen=True, slots=True)
class Recover:
    """What a broker does to the store when it starts, and leaves after a clean shutdown.

    Attributes:
        release: whose rules are followed, "4.9" or "5.5".
        mode: "careful" or "compatible", see `engine.RecoveryMode`.
        time: ms since epoch; names of new files depend on it.
    """

    release: str
    mode: str
    time: int


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
    | MoveOffsets
    | Recover
)


VERBS = {
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
    "offsets": MoveOffsets,
    "recover": Recover,
}
"""By their names in plans."""

_LISTS_OF_NUMBERS = ("physical_offsets",)
_NUMBERS = ("queue_id", "at", "before", "time")
_CHOICES = {"release": ("4.9", "5.5"), "mode": ("careful", "compatible")}


def change_to_json(change: Change) -> dict[str, Any]:
    """Returns a change in the form of a plan."""
    verb = next(name for name, kind in VERBS.items() if type(change) is kind)
    values = {field.name: getattr(change, field.name) for field in fields(change)}
    if isinstance(change, MoveOffsets):
        values["moves"] = tuple(asdict(move) for move in change.moves)
    return {"verb": verb} | {name: list(value) if type(value) is tuple else value for name, value in values.items()}


def change_from_json(value: Any) -> Change:
    """Reads a change.

    Raises:
        UsageError: an unknown verb, or a value of a wrong type.
    """
    if not isinstance(value, dict) or value.get("verb") not in VERBS:
        raise UsageError(f"expected one of {', '.join(VERBS)}, found {str(value)[:60]!r}")
    given = {name: _value(name, one) for name, one in value.items() if name != "verb"}
    try:
        return VERBS[value["verb"]](**given)
    except TypeError as error:
        raise UsageError(f"{value['verb']}: {error}") from error


def _value(name: str, value: Any) -> Any:
    if name == "moves":
        return tuple(move_from_json(one) for one in value) if isinstance(value, list) else _refused(name, value)
    if isinstance(value, list):
        kind: type = int if name in _LISTS_OF_NUMBERS else str
        if all(type(one) is kind for one in value):
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
