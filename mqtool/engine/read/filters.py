"""Filters: which messages of a queue a get returns, decided first by the unit, then by the record.

Source: ExpressionMessageFilter, DefaultMessageFilter, FilterAPI.buildSubscriptionData (4.9.7, 5.5.0).
"""

from typing import Protocol

from mqtool.engine.dispatch.bloom import has_all
from mqtool.formats import java
from mqtool.formats.consume_queue import is_ext_address
from mqtool.formats.consume_queue_ext import ConsumeQueueExtUnit
from mqtool.formats.sql92 import Expression

ALL = "*"


class MessageFilter(Protocol):
    """The interface that a get calls."""

    def by_unit(self, tags_code: int, ext: ConsumeQueueExtUnit | None) -> bool:
        """Whether the message may match, judging by its unit."""

    def by_record(self, properties: dict[str, str]) -> bool:
        """Whether the record matches; called only if `by_unit` returned True."""


class TagFilter:
    """Messages with one of some tags, by the hashes of the tags; hashes may collide."""

    def __init__(self, expression: str) -> None:
        """Parses an expression such as "TagA || TagB"; "*" or "" selects all."""
        parts = [] if expression.strip() == ALL else expression.split("||")
        self.tags = tuple(tag.strip() for tag in parts if tag.strip())
        self._codes = frozenset(java.string_hash(tag) for tag in self.tags)

    def by_unit(self, tags_code: int, ext: ConsumeQueueExtUnit | None) -> bool:
        """Whether the tag's hash is one of the selected; always true if the extension cannot be read."""
        if not self._codes:
            return True
        if is_ext_address(tags_code):
            if ext is None:
                return True
            tags_code = ext.tags_code
        return java.to_int32(tags_code) in self._codes

    def by_record(self, properties: dict[str, str]) -> bool:  # noqa: ARG002 - the other filter needs it
        """Always true: the client compares the tags themselves."""
        return True


class SqlFilter:
    """Messages whose properties satisfy an SQL92 expression."""

    def __init__(self, expression: str, bits: tuple[int, ...] = (), bit_map_bits: int = 0, *, v4: bool = False) -> None:
        """Compiles an expression.

        Args:
            expression: a consumer's subscription.
            bits: positions of its group in bit maps (`bloom.positions`); () if there are no bit maps.
            bit_map_bits: length of the bit maps.
            v4: parse as 4.9 does.

        Raises:
            UsageError: the expression is invalid.
        """
        self._expression = Expression(expression, v4=v4)
        self._bits = bits
        self._bit_map_bits = bit_map_bits

    def by_unit(self, tags_code: int, ext: ConsumeQueueExtUnit | None) -> bool:
        """Whether the bit map allows a match; always true without a bit map of the right length."""
        if not self._bits or ext is None or not is_ext_address(tags_code) or len(ext.bit_map) * 8 != self._bit_map_bits:
            return True
        return has_all(ext.bit_map, self._bits)

    def by_record(self, properties: dict[str, str]) -> bool:
        """Whether the expression is true; one that is unknown because a property is missing counts as false."""
        return self._expression.matches(properties)
