"""A plan: what a change does to each file, as data that can be read, stored and checked.

Docs page: docs/repair.md. A plan contains no bytes of messages. `apply` builds the new files again, and they must
have the checksums that the plan states.
"""

import json
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from mqtool.commands import Opened
from mqtool.errors import RefusedError, UsageError
from mqtool.recovery.losses import LossCount, loss_numbers
from mqtool.repair.changes import Change, change_from_json, change_to_json
from mqtool.repair.paths import check_name
from mqtool.store.plan_file import canonical, check_version, digest_of, edited, sealed, wrong_field
from mqtool.values import asdict

SCHEMA = "mqtool.plan"
SCHEMA_VERSION = 3
LARGEST = 1 << 30
"""Bytes of a plan file that are read."""


class Fingerprint(Struct, frozen=True):
    """Identifies the state of a file."""

    size: int  # bytes
    modified_ns: int | None  # modification time; without meaning for a file that is still to be written
    # Of all bytes; None if size and time are enough because the bytes do not matter, or the file is longer than any
    # file of a broker.
    sha256: str | None

    def fits(self, other: "Fingerprint | None") -> bool:
        """Whether another fingerprint can be of the same bytes."""
        if other is None or self.size != other.size:
            return False
        if self.sha256 is None or other.sha256 is None:
            return None in (self.modified_ns, other.modified_ns) or self.modified_ns == other.modified_ns
        return self.sha256 == other.sha256


class Step(Struct, frozen=True):
    """The change of one file."""

    path: str  # relative to the root, `/`-separated
    before: Fingerprint | None  # present state; None if the file does not exist
    after: Fingerprint | None  # new state; None if the file moves to the quarantine without a replacement

    @property
    def action(self) -> str:
        """create, replace or set-aside."""
        return "create" if self.before is None else "set-aside" if self.after is None else "replace"


class Read(Struct, frozen=True):
    """A file that the result depends on; see `Step` for `path`."""

    path: str
    fingerprint: Fingerprint


class Forecast(Struct, frozen=True):
    """How many messages are lost already, by a start of the broker before a change, and by the change."""

    release: str  # of the broker
    losses: LossCount  # before the change, and by it
    unserved_after: int  # messages whose intact records stay in the log, and that no consumer gets after the change
    # SHA-256 over what the store then holds and a start delivers. If `apply` finds the same value, the plan's forecast
    # holds.
    outcome: str

    @property
    def undelivered(self) -> int | None:
        """Number of messages that are still in the store, and that a start after the change does not deliver.

        It is None if the broker does not start.
        """
        return None if self.losses.by_change is None else self.losses.by_change + self.unserved_after

    @property
    def is_repaired(self) -> bool:
        """Whether a start after the change delivers all that is not lost already."""
        return self.undelivered == 0

    @property
    def words(self) -> str:
        """The numbers in one line."""
        losses = self.losses
        start = "does not start" if losses.by_start is None else losses.start_words
        words = f"RocketMQ {self.release} {start}"
        if losses.by_start is None:
            words += losses.words
        if losses.by_change is None:
            return f"{words}; after this change it does not start"
        left = f"; not served after it: {self.unserved_after}" if self.unserved_after else ""
        return words + ("" if losses.by_change else "; this change loses no message") + left

    def as_dict(self) -> dict[str, Any]:
        """Returns the forecast as JSON values."""
        lost = {**loss_numbers(self.losses), "not_served_after": self.unserved_after}
        return {"release": self.release, **lost, "outcome": self.outcome}


class Plan(Struct, frozen=True):
    """A complete change."""

    store: str  # root of the store, absolute and without symbolic links
    inode: int  # of the root, so that a copy is not mistaken for the store
    created: str  # RFC 3339
    broker_version: str  # release that wrote the store, e.g. "5.5".
    config: dict[str, str]  # broker keys that were given
    changes: tuple[Change, ...]  # the requested changes
    complete: bool  # False if damage prevented a repair or rebuild; see `notes`
    notes: tuple[str, ...]  # what to know before applying the plan, in words
    reads: tuple[Read, ...]  # files that the result depends on
    steps: tuple[Step, ...]  # changes of files, in order
    space: int  # additional disk space needed, bytes
    # What a start loses before and after; None if no message depends on the change, or if it is unknown.
    forecast: Forecast | None = None
    # Absolute path of the file that `config` was read from, None if there was none; for printed commands.
    config_file: str | None = None
    release: str | None = None  # the release that will be started, if it was given

    def opened_at(self, root: Path) -> Opened:
        """Returns the store at a path with the options of the plan, for printed commands."""
        file = self.config_file
        return Opened(root, file if file is not None and Path(file).is_file() else None, self.release)

    @property
    def digest(self) -> str:
        """Returns the SHA-256 over all other fields."""
        return digest_of(self._body())

    def _body(self) -> dict[str, Any]:
        body = structs.asdict(self)
        body["changes"] = [change_to_json(change) for change in self.changes]
        body["reads"] = [asdict(read) for read in self.reads]
        body["steps"] = [asdict(step) for step in self.steps]
        body["forecast"] = None if self.forecast is None else self.forecast.as_dict()
        body["gates"] = list(GATES)
        return {"schema": SCHEMA, "schema_version": SCHEMA_VERSION, **body}

    def to_json(self) -> str:
        """Returns the plan as the text of a plan file."""
        return sealed(self._body())

    @classmethod
    def from_json(cls, text: "str | bytes", where: "str | Path" = "plan") -> "Plan":
        """Reads a plan; messages name where it is.

        Raises RefusedError if it is none, was edited, reaches outside of its store, or is of an unknown release.
        """
        path = Path(where)
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise RefusedError("plan-unreadable", f"expected a plan in JSON: {error}", path) from error
        if not isinstance(document, dict) or document.get("schema") != SCHEMA:
            raise RefusedError("plan-unreadable", f"expected a document of schema {SCHEMA}", path)
        check_version(document, SCHEMA_VERSION, path)
        try:
            plan = _plan_of(document, path)
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError, UsageError) as error:
            raise wrong_field(error, path) from error
        stated = document.pop("digest", None)
        if stated != plan.digest or canonical(document) != canonical(plan._body()):
            raise edited(path)
        return plan


GATES = ("lock", "nobody-writes", "space", "backup")
"""Preconditions of a change, in addition to the fingerprints."""


def _plan_of(document: dict[str, Any], path: Path) -> Plan:
    store = document["store"]
    if not isinstance(store, str) or not Path(store).is_absolute() or ".." in Path(store).parts or "\0" in store:
        raise RefusedError("path", f"expected an absolute path of a store, found {str(store)[:200]!r}", path)
    steps = tuple(
        Step(check_name(item["path"], path), _fingerprint(item["before"]), _fingerprint(item["after"]))
        for item in document["steps"]
    )
    if any(step.before is None and step.after is None for step in steps):
        raise RefusedError("plan-unreadable", "a step does nothing", path)
    if len({step.path for step in steps}) != len(steps):
        raise RefusedError("plan-unreadable", "two steps affect the same file", path)
    reads = []
    for item in document["reads"]:
        state = _fingerprint(item["fingerprint"])
        if state is None:
            raise TypeError("reads")
        reads.append(Read(check_name(item["path"], path), state))
    return Plan(
        store,
        _typed(document["inode"], int),
        _typed(document["created"], str),
        _typed(document["broker_version"], str),
        {_typed(key, str): _typed(value, str) for key, value in document["config"].items()},
        tuple(change_from_json(item) for item in document["changes"]),
        _typed(document["complete"], bool),
        tuple(_typed(note, str) for note in document["notes"]),
        tuple(reads),
        steps,
        _typed(document["space"], int),
        _forecast(document["forecast"]),
        *(None if document[name] is None else _typed(document[name], str) for name in ("config_file", "release")),
    )


def _forecast(value: Any) -> Forecast | None:
    if value is None:
        return None
    losses = LossCount(
        _typed(value["already_lost"], int),
        None if value["lost_by_start"] is None else _typed(value["lost_by_start"], int),
        _typed(value["not_served"], int),
        None if value["lost_by_change"] is None else _typed(value["lost_by_change"], int),
        _typed(value["lost_waiting"], int),
    )
    after, outcome = _typed(value["not_served_after"], int), _typed(value["outcome"], str)
    return Forecast(_typed(value["release"], str), losses, after, outcome)


def _fingerprint(value: Any) -> Fingerprint | None:
    if value is None:
        return None
    modified, sha256 = value["modified_ns"], value["sha256"]
    return Fingerprint(
        _typed(value["size"], int),
        None if modified is None else _typed(modified, int),
        None if sha256 is None else _typed(sha256, str),
    )


def _typed(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(f"expected {kind.__name__}, found {str(value)[:40]!r}")
    return value
