"""The dispatch rules that a store's broker followed, from its release, its configuration and its files."""

from collections.abc import Collection

from mqtool.formats.config_files import batch_topics
from mqtool.formats.topics import is_lmq
from mqtool.records.dispatch import DispatchRules, rules_for
from mqtool.store.config.broker_config import BrokerConfig
from mqtool.store.config.metadata import Metadata


def has_further_queues(config: BrokerConfig, topics: Collection[str]) -> bool:
    """Whether the further queues that records name (INNER_MULTI_DISPATCH) should have units.

    The records show it: only a broker with enableMultiDispatch adds the queue offsets in these. A broker that has it
    switched off serves these queues if there are some.

    Args:
        config: broker.conf.
        topics: that have queues.
    """
    return config.flag("enableMultiDispatch") is not False or any(is_lmq(topic) for topic in topics)


def rules_of(
    release: tuple[int, ...],
    config: BrokerConfig,
    metadata: Metadata,
    delay_levels: tuple[int, ...],
    topics: Collection[str],
    further_batch_topics: "set[str] | frozenset[str]" = frozenset(),
) -> DispatchRules:
    """Returns the rules.

    Args:
        release: numbers of the broker's release.
        config: broker.conf.
        metadata: names topics with BatchConsumeQueues.
        delay_levels: delay of each level, ms.
        topics: that have queues.
        further_batch_topics: further topics with BatchConsumeQueues.
    """
    return rules_for(
        release,
        multi_dispatch=has_further_queues(config, topics),
        delay_levels=delay_levels,
        batch_topics=batch_topics(metadata.topics) | further_batch_topics,
    )
