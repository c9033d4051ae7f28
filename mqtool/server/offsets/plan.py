"""A plan of positions on a running broker, as a file; the undo file of one is such a plan too."""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mqtool.errors import RefusedError, UsageError
from mqtool.store.offset_moves import Move, move_from_json

SCHEMA = "mqtool.broker-offsets"
SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class BrokerPlan:
    """New positions on a broker.

    Attributes:
        broker: "host:port".
        name: brokerName, so that another broker at this address is not taken for it.
        created: RFC 3339.
        moves: one for each queue of a group.
        online: consumers of the groups may run: positions are moved by the broker's reset, which tells them.
        time: for a reset of running consumers of 4.9, whose broker resets by time only: ms since epoch, -1 for the end
            of the queues; None if the positions are not given by time.
        notes: what is worth knowing before, in words.
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
        """SHA-256 over everything else."""
        return hashlib.sha256(_text(self._body()).encode()).hexdigest()

    def to_json(self) -> str:
        """Returns the plan as it is kept in a file."""
        return json.dumps({**self._body(), "digest": self.digest}, indent=1) + "\n"

    def undo(self) -> "BrokerPlan":
        """Returns the plan that sets the positions back."""
        moves = tuple(Move(one.group, one.topic, one.queue_id, one.after, one.before) for one in self.moves)
        notes = ("undoes the plan next to it",)
        return BrokerPlan(self.broker, self.name, self.created, moves, self.online and self.time is None, notes=notes)

    @classmethod
    def from_json(cls, data: bytes, path: Path) -> "BrokerPlan | None":
        """Reads a plan; None if the file is of another kind.

        Raises:
            RefusedError: it was edited, or is of another release.
        """
        try:
            document = json.loads(data)
        except (ValueError, RecursionError):
            return None
        if not isinstance(document, dict) or document.get("schema") != SCHEMA:
            return None
        if document.get("schema_version") != SCHEMA_VERSION:
            raise RefusedError("plan-version", f"expected version {SCHEMA_VERSION}; run `mqtool plan` again", path)
        try:
            names = ("broker", "name", "created", "online", "time")
            moves = tuple(move_from_json(one) for one in document["moves"])
            notes = tuple(str(note) for note in document["notes"])
            found = cls(moves=moves, notes=notes, **{name: document[name] for name in names})
        except (KeyError, TypeError, ValueError, UsageError) as error:
            raise RefusedError("plan-unreadable", f"a field is missing or of a wrong type: {error}", path) from error
        if document.get("digest") != found.digest:
            raise RefusedError("plan-edited", "it was edited: its digest differs; run `mqtool plan` again", path)
        return found


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
