"""The record of a runbook's run: every step with its evidence, as JSON values and as Markdown for a ticket."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from mqtool.recovery.losses import LossCount, loss_numbers
from mqtool.store.config.broker_config import UNCHECKED

DONE = "done"
REFUSED = "refused"
SKIPPED = "skipped"
"""Not tried: a dry run, or a step before it ended the run."""
FAILED = "failed"


class Step(Struct, frozen=True):
    """One step of a run."""

    name: str  # detect, explain, plan, gate, apply, verify, undo
    status: str  # done, refused, skipped or failed
    summary: str  # in words
    evidence: tuple[str, ...] = ()  # facts, one each


class Protocol(Struct):
    """A complete run."""

    runbook: str  # and name: id and name of the runbook
    name: str
    store: Path  # root
    broker: str  # release whose start is predicted
    config: Path | None = None  # the broker's configuration file; None without one
    begun: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))  # RFC 3339
    present: bool = False  # whether the problem is present
    ready: bool = False  # whether nothing but consent is missing
    applied: bool = False  # whether a change was applied
    repaired: bool | None = None  # whether the problem is solved; None if nothing was applied
    losses: LossCount | None = None  # when the run began, and by its change; None if unknown
    plan: dict[str, Any] | None = None  # JSON of the plan, None if nothing changes in place
    new_directory: Path | None = None  # the new directory, if one was created
    steps: list[Step] = field(default_factory=list)  # in order
    next_steps: tuple[str, ...] = ()  # commands to type, in this order or to choose from

    def add(self, name: str, status: str, summary: str, evidence: tuple[str, ...] = ()) -> None:
        """Adds a step."""
        self.steps.append(Step(name, status, summary, evidence))

    def step(self, name: str) -> Step:
        """Returns the step with a name."""
        return next(step for step in self.steps if step.name == name)

    def as_dict(self) -> dict[str, Any]:
        """Returns the protocol as JSON values."""
        return {
            "runbook": self.runbook,
            "name": self.name,
            "store": str(self.store),
            "config": self.config and str(self.config),
            "broker": self.broker,
            "begun": self.begun,
            "present": self.present,
            "applied": self.applied,
            "repaired": self.repaired,
            **self._losses,
            "made": None if self.new_directory is None else str(self.new_directory),
            "steps": [
                {"name": step.name, "status": step.status, "summary": step.summary, "evidence": list(step.evidence)}
                for step in self.steps
            ],
            "plan": self.plan,
            "next_steps": list(self.next_steps),
        }

    @property
    def _losses(self) -> dict[str, int | None]:
        return loss_numbers(self.losses)

    def markdown(self) -> str:
        """Returns the protocol as Markdown, for a ticket."""
        lines = [
            f"# {self.runbook} {self.name}",
            "",
            f"- store: `{self.store}`",
            f"- broker: RocketMQ {self.broker}",
            f"- broker.conf: {UNCHECKED if self.config is None else f'`{self.config}`'}",
            f"- begun: {self.begun}",
            f"- trouble is there: {_yes(self.present)}",
            f"- applied: {_yes(self.applied)}",
            f"- repaired: {_yes(self.repaired)}",
            *(
                f"- messages {name.replace('_', ' ')}: {'unknown' if count is None else count}"
                for name, count in self._losses.items()
            ),
            "",
        ]
        for number, step in enumerate(self.steps, 1):
            lines += [f"## {number}. {step.name}: {step.status}", "", step.summary, ""]
            if step.evidence:
                lines += ["```text", *(fact.replace("```", "'''") for fact in step.evidence), "```", ""]
        if self.next_steps:
            lines += ["Next:", "", "```sh", *self.next_steps, "```", ""]
        return "\n".join(lines)


def _yes(value: bool | None) -> str:
    return "not tried" if value is None else "yes" if value else "no"
