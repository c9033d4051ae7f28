"""Reconstructs the life of one message from the records in a store."""

from mqtool.story.history import MessageHistory, histories_of
from mqtool.story.steps import Step, StepKind

__all__ = ["MessageHistory", "Step", "StepKind", "histories_of"]
