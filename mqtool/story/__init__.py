"""The life of one message, from the records that a store has of it."""

from mqtool.story.life import Life, tell
from mqtool.story.steps import Step, StepKind

__all__ = ["Life", "Step", "StepKind", "tell"]
