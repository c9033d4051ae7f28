"""The dispatch rules that a store's broker followed, from its release, its configuration and its files."""

from mqtool.errors import UsageError
from mqtool.records.dispatched import DispatchRules
from mqtool.store.broker_config import BrokerConfig
from mqtool.store.metadata import Metadata

_INDEX_TAGS_SINCE = (5, 5)


def rules_of(
    line: str | None,
    config: BrokerConfig,
    metadata: Metadata,
    delay_levels: tuple[int, ...],
    batch_topics: "set[str] | frozenset[str]" = frozenset(),
) -> DispatchRules:
    """Returns the rules.

    Args:
        line: release, e.g. "4.9" or "5.5"; an unknown one counts as a new one.
        config: broker.conf.
        metadata: names topics with BatchConsumeQueues.
        delay_levels: delay of each level, ms.
        batch_topics: further topics with BatchConsumeQueues.

    Raises:
        UsageError: `line` is not a release.
    """
    release = _release(line)
    configured = {topic.topic_name for topic in metadata.topics.values() if topic.queue_type == "BatchCQ"}
    multi_dispatch = config.flag("enableMultiDispatch")
    return DispatchRules(
        index_tags=release >= _INDEX_TAGS_SINCE,
        multi_dispatch=True if multi_dispatch is None else multi_dispatch,
        lmq_everywhere=release < (5,),
        delay_levels=delay_levels,
        batch_topics=frozenset(configured | batch_topics),
    )


def _release(line: str | None) -> tuple[int, ...]:
    if line is None:
        return _INDEX_TAGS_SINCE
    try:
        return tuple(int(part) for part in line.split(".")[:2])
    except ValueError as error:
        raise UsageError(f"broker version {line!r}: expected a release such as 4.9 or 5.5") from error
