"""One step in the life of a message, and the evidence for it."""

from enum import StrEnum

from msgspec import Struct


class StepKind(StrEnum):
    """Kind of a step."""

    SENT = "sent"
    """Stored in its topic."""
    HALF = "half"
    """Stored as a half message of a transaction."""
    CHECKED = "checked"
    """The producer was asked for the state of its transaction."""
    COMMITTED = "committed"
    ROLLED_BACK = "rolled-back"
    GIVEN_UP = "given-up"
    """Neither committed nor rolled back after the last check."""
    DELAYED = "delayed"
    """Parked in a delay level."""
    TIMED = "timed"
    """Parked in the timer."""
    ROLLED = "rolled"
    """Parked in the timer again: it is due after the wheel's span."""
    RECALLED = "recalled"
    """Taken out of the timer before its time."""
    DELIVERED = "delivered"
    """Stored in its topic after its delay."""
    PASSED = "passed"
    """The position of a group is past it: the group got it or skipped it."""
    POPPED = "popped"
    ACKNOWLEDGED = "acknowledged"
    SENT_BACK = "sent-back"
    """A consumer could not process it; parked until the next try."""
    RETRY = "retry"
    """Stored in the retry topic of a group."""
    DEAD = "dead"
    """Stored in the dead letter topic of a group."""
    TRACED = "traced"
    """A client's own report, from the trace topic."""
    WAITS = "waits"
    """Not delivered, committed or read yet."""
    UNKNOWN = "not-provable"
    """The store does not show what happened."""


class Step(Struct, frozen=True):
    """One step."""

    kind: StepKind  # what happened
    text: str  # the same as a sentence
    proof: str  # the record, unit, file or consumer offset that proves it; the reason if it is not provable
    at: int | None = None  # when, in ms since epoch; None if the store does not contain the time
    order: int = 0  # for steps without a time, the physical offset after which to sort them
    group: str | None = None  # consumer group or producer group
    topic: str | None = None  # and queue_id, queue_offset, physical_offset: of the record that the step refers to
    queue_id: int | None = None
    queue_offset: int | None = None
    physical_offset: int | None = None
    due: int | None = None  # when the message will be delivered, in ms since epoch
    tries: int = 0  # number of earlier delivery attempts to the group, or of transaction checks sent to the producer
    # End of the period that starts with this step, in ms since epoch; None if it has no duration or the store does not
    # contain it.
    until: int | None = None
    is_of_producer: bool = False  # `group` is a producer group

    @property
    def is_proved(self) -> bool:
        """Whether data in the store proves the step."""
        return self.kind is not StepKind.UNKNOWN
