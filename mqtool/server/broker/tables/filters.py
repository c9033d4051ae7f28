"""Message filters of consumers: converts clients' subscriptions to filters of the engine.

Source: FilterAPI, ExpressionMessageFilter, ConsumerFilterManager (5.5.0).
"""

from functools import lru_cache
from typing import Any

from mqtool.engine.read.filters import SqlFilter
from mqtool.errors import UsageError
from mqtool.formats import java
from mqtool.protocol.codes import ResponseCode
from mqtool.server.broker.answers import RefusalError
from mqtool.server.broker.settings import BrokerSettings
from mqtool.server.broker.tables.clients import Subscription
from mqtool.store.filters import ALL, MessageFilter, TagFilter

TAG = "TAG"


@lru_cache(maxsize=4096)
def filter_of(expression: str, kind: str) -> MessageFilter | None:
    """Returns the engine's filter for an expression; None if every message matches.

    Args:
        expression: expression of a subscription.
        kind: "TAG"; any other value means SQL92.

    Raises:
        UsageError: the expression is not valid SQL92.
    """
    if is_tag(kind):
        return None if expression in ("", ALL) else TagFilter(expression)
    return SqlFilter(expression)


def checked_filter(expression: str, kind: str) -> MessageFilter | None:
    """Like `filter_of`, but refuses invalid expressions.

    Raises:
        RefusalError: the expression cannot be parsed.
    """
    try:
        return filter_of(expression, kind)
    except UsageError as error:
        remark = "parse the consumer's subscription failed"
        raise RefusalError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark) from error


def filter_allowed(settings: BrokerSettings, expression: str, kind: str) -> MessageFilter | None:
    """Like `checked_filter`, but refuses SQL92 if it is not enabled.

    Raises:
        RefusalError: the expression cannot be parsed, or is SQL92 and `enablePropertyFilter` is off.
    """
    if not is_tag(kind) and not settings.flag("enablePropertyFilter"):
        remark = f"The broker does not support consumer to filter message by {kind}"
        raise RefusalError(ResponseCode.SYSTEM_ERROR, remark)
    return checked_filter(expression, kind)


def is_tag(kind: str | None) -> bool:
    """Whether an expression type means tags (ExpressionType.isTagType)."""
    return not kind or kind == TAG


def subscription_of(topic: str, expression: str, version: int, kind: str) -> Subscription:
    """Returns a subscription; the tags codes are computed from the tags, not taken from the client.

    Raises:
        UsageError: the expression is not valid SQL92.
    """
    if not is_tag(kind):
        filter_of(expression, kind)
        return Subscription(topic, expression, version, kind)
    tags = TagFilter(expression).tags
    codes = tuple(sorted({java.string_hash(tag) for tag in tags}))
    return Subscription(topic, expression or ALL, version, TAG, tags=tags, codes=codes)


def subscription_from(document: dict[str, Any]) -> Subscription:
    """Parses a subscription in a heartbeat's body; if its expression is invalid, it matches no message."""
    topic, expression = str(document.get("topic", "")), str(document.get("subString") or ALL)
    version, kind = java.json_long(document.get("subVersion") or 0), str(document.get("expressionType") or TAG)
    try:
        return subscription_of(topic, expression, version, kind)
    except UsageError:
        return Subscription(topic, expression, version, kind)
