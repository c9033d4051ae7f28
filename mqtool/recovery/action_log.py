"""The actions of a start on files, logged in order instead of executed; and the ways in which a start ends early.

`ActionLog` is the plan under construction: `steps` can be carried out one by one, and the difference between the
directory before and after is derived from them.
"""

from enum import StrEnum
from pathlib import Path

from msgspec import Struct, field


class Action(StrEnum):
    """What happens to one file. The names are stable: they appear in output."""

    DELETE = "delete"
    CREATE = "create"
    TRUNCATE = "truncate"
    """Its end of data is set to `position`; not a byte changes, what follows is overwritten later."""
    APPEND = "append"
    """Units or entries are written from `position` on."""
    GROW = "grow"
    """It is lengthened with zeros to `position` bytes."""
    WRITE = "write"
    """Written whole."""


class Step(Struct, frozen=True):
    """One action of a start."""

    action: Action  # kind of action
    path: Path  # the file
    position: int = 0  # bytes: where the data ends, where writing begins, or the new length of the file
    count: int = 0  # units, entries or bytes written


class ActionLog(Struct):
    """Steps in order, and the rules that led to them."""

    steps: list[Step] = field(default_factory=list)  # actions
    why: list[str] = field(default_factory=list)  # rules applied, in plain words with their source
    accepted: list[str] = field(default_factory=list)  # faults that the broker accepts silently
    undecided: list[str] = field(default_factory=list)  # what the files do not decide

    def do(self, action: Action, path: Path, position: int = 0, count: int = 0) -> None:
        """Adds a step."""
        self.steps.append(Step(action, path, position, count))

    def log_reason(self, rule: str) -> None:
        """Logs a rule, once."""
        if rule not in self.why:
            self.why.append(rule)

    def log_accepted(self, fault: str) -> None:
        """Logs a fault that the broker does not notice, once."""
        if fault not in self.accepted:
            self.accepted.append(fault)

    def log_undecided(self, question: str) -> None:
        """Logs a question that the files do not decide, once."""
        if question not in self.undecided:
            self.undecided.append(question)


class StartFailed(Exception):  # noqa: N818 - an end, not an error
    """A start that fails."""

    def __init__(self, code: int, refusal: str, *, at_once: bool = False) -> None:
        super().__init__(refusal)
        self.exit = code  # -3 (load returned false) or -1 (load or start ended with an exception)
        self.refusal = refusal  # the broker's message
        self.at_once = at_once  # the process ends immediately; nothing is closed


class StartHung(Exception):  # noqa: N818 - an end, not an error
    """A start that never ends."""

    def __init__(self, where: str) -> None:
        super().__init__(where)
        self.where = where  # the loop that does not end


def load_fails(refusal: str) -> StartFailed:
    """Returns the failure `load() == false`: exit -3."""
    return StartFailed(-3, refusal)


def throws(refusal: str) -> StartFailed:
    """Returns the failure by an exception in load() or start(): exit -1."""
    return StartFailed(-1, refusal)


def exits(refusal: str) -> StartFailed:
    """Returns the failure by System.exit(-1) in the middle of load(), as in DLedger."""
    return StartFailed(-1, refusal, at_once=True)
