"""A plan of new consumer offsets on a running broker, stored as a file; its undo file is such a plan too."""

import json
from pathlib import Path
from typing import Any

from msgspec import Struct

from mqtool.errors import UsageError
from mqtool.store.offset_moves import Move, move_from_json
from mqtool.store.plan_file import check_version, digest_of, edited, sealed, wrong_field
from mqtool.values import asdict

SCHEMA = "mqtool.broker-offsets"
SCHEMA_VERSION = 1


class BrokerPlan(Struct, frozen=True):
    """New consumer offsets on a broker.

    Attributes:
        broker: "host:port" of the broker.
        name: brokerName, checked so that another broker at this address is not changed.
        created: time of creation, RFC 3339.
        moves: one move for each queue of a group.
        online: whether consumers of the groups may be running; offsets are then changed by the broker's reset, which
            notifies them.
        time: for a reset of running consumers of 4.9, whose broker resets only by time: ms since epoch, -1 for the end
            of the queues; None if the offsets are not given by time.
        notes: remarks to read before applying the plan.
    """

    broker: str
    name: str
    created: str
    moves: tuple[Move, ...]
    online: bool = False
    time: int | None = None
    notes: tuple[str, ...] = ()

    def _body(self) -> dict[str, Any]:
        return {"schema": SCHEMA, "schema_version": SCHEMA_VERSION, **asdict(self)}

    @property
    def digest(self) -> str:
        """SHA-256 of all other fields."""
        return digest_of(self._body())

    def to_json(self) -> str:
        """Returns the plan as the content of its file."""
        return sealed(self._body())

    def undo(self) -> "BrokerPlan":
        """Returns the plan that restores the previous offsets."""
        moves = tuple(Move(move.group, move.topic, move.queue_id, move.after, move.before) for move in self.moves)
        notes = ("undoes the plan next to it",)
        return BrokerPlan(self.broker, self.name, self.created, moves, self.online and self.time is None, notes=notes)

    @classmethod
    def from_json(cls, data: bytes, path: Path) -> "BrokerPlan | None":
        """Parses a plan; None if the file is of another kind.

        Raises:
            RefusedError: the file was edited, or is of another release.
        """
        try:
            document = json.loads(data)
        except (ValueError, RecursionError):
            return None
        if not isinstance(document, dict) or document.get("schema") != SCHEMA:
            return None
        check_version(document, SCHEMA_VERSION, path)
        try:
            names = ("broker", "name", "created", "online", "time")
            moves = tuple(move_from_json(move) for move in document["moves"])
            notes = tuple(str(note) for note in document["notes"])
            plan = cls(moves=moves, notes=notes, **{name: document[name] for name in names})
        except (KeyError, TypeError, ValueError, UsageError) as error:
            raise wrong_field(error, path) from error
        if document.get("digest") != plan.digest:
            raise edited(path)
        return plan
