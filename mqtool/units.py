"""Kinds of number that must not be mixed up, as types. See the glossary in docs/glossary.md."""

from typing import NewType

PhysicalOffset = NewType("PhysicalOffset", int)
"""Byte address in the whole CommitLog: a segment's first offset plus a position in it."""

QueueOffset = NewType("QueueOffset", int)
"""Ordinal of a message in one queue of a topic."""

Position = NewType("Position", int)
"""Byte address inside one file."""

Millis = NewType("Millis", int)
"""Milliseconds since 1970-01-01T00:00:00Z."""
