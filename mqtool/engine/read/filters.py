"""The filter for SQL92 expressions; the filter for tags is in `store.queues.filters`.

Source: ExpressionMessageFilter, DefaultMessageFilter (4.9.7, 5.5.0).
"""

from mqtool.formats.consume_queue import ConsumeQueueExtUnit
from mqtool.formats.release import V5_5
from mqtool.formats.sql92 import Expression


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
