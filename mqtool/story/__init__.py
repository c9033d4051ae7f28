"""Reconstructs the life of one message from the records in a store."""

from mqtool.story.life import Life, tell
from mqtool.story.steps import Step, StepKind

__all__ = ["Life", "Step", "StepKind", "tell"]
