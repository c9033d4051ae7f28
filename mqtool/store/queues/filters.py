"""Filters: which messages of a queue a get returns, decided first by the unit, then by the record.

Source: ExpressionMessageFilter, DefaultMessageFilter, FilterAPI.buildSubscriptionData (4.9.7, 5.5.0).
"""

from typing import Protocol

from mqtool.formats import java
from mqtool.formats.consume_queue import ConsumeQueueExtUnit, is_ext_address
from mqtool.formats.release import V5_5
from mqtool.formats.sql92 import Expression

ALL = "*"


class MessageFilter(Protocol):
    """The interface that a get calls."""

    def by_unit(self, tags_code: int, ext: ConsumeQueueExtUnit | None) -> bool:
        """Whether the message may match, judging by its unit."""

    def by_record(self, properties: dict[str, str]) -> bool:
        """Whether the record matches; called only if `by_unit` returned True."""


class TagFilter:
    """Selects messages by the hashes of their tags; hashes may collide."""

    def __init__(self, expression: str) -> None:
        """Parses an expression such as "TagA || TagB"; "*" or "" selects all, "* " only the tag "*" (FilterAPI)."""
        self._takes_all = expression in ("", ALL)
        tags = () if self._takes_all else map(java.trim, expression.split("||"))
        self.tags = tuple(filter(None, tags))
        self._codes = frozenset(java.string_hash(tag) for tag in self.tags)

    def by_unit(self, tags_code: int, ext: ConsumeQueueExtUnit | None) -> bool:
        """Whether the tag's hash is one of the selected; always true if the extension cannot be read."""
        if self._takes_all:
            return True
        if is_ext_address(tags_code):
            if ext is None:
                return True
            tags_code = ext.tags_code
        return java.to_int32(tags_code) in self._codes

    def by_record(self, properties: dict[str, str]) -> bool:  # noqa: ARG002 - the other filter needs it
        """Always true: the client compares the tags themselves."""
        return True

    def by_tag(self, tag: str | None) -> bool:
        """Whether the tag itself is one of the selected (FilterUtils.isTagMatched)."""
        return not self.tags or tag in self.tags


class SqlFilter:
    """Selects messages whose properties satisfy an SQL92 expression."""

    def __init__(self, expression: str) -> None:
        """Compiles a consumer's expression.

        Raises:
            UsageError: the expression is invalid.
        """
        self._expression = Expression(expression, release=V5_5)

    def by_unit(self, tags_code: int, ext: ConsumeQueueExtUnit | None) -> bool:  # noqa: ARG002 - of every filter
        """Returns True: the record decides."""
        return True

    def by_record(self, properties: dict[str, str]) -> bool:
        """Whether the expression is true; one that is unknown because a property is missing counts as false."""
        return self._expression.matches(properties)
