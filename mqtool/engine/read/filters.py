"""The filter for SQL92 expressions; the filter for tags is in `store.filters`.

Source: ExpressionMessageFilter, DefaultMessageFilter (4.9.7, 5.5.0).
"""

from mqtool.engine.dispatch.bloom import has_all
from mqtool.formats.consume_queue import is_ext_address
from mqtool.formats.consume_queue_ext import ConsumeQueueExtUnit
from mqtool.formats.release import V5_5, Release
from mqtool.formats.sql92 import Expression


class SqlFilter:
    """Selects messages whose properties satisfy an SQL92 expression."""

    def __init__(
        self, expression: str, bits: tuple[int, ...] = (), bit_map_bits: int = 0, *, release: Release = V5_5
    ) -> None:
        """Compiles an expression.

        Args:
            expression: a consumer's subscription.
            bits: positions of its group in bit maps (`bitPos` of consumerFilter.json); () if there are no bit maps.
            bit_map_bits: length of the bit maps.
            release: whose grammar applies.

        Raises:
            UsageError: the expression is invalid.
        """
        self._expression = Expression(expression, release=release)
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
