"""The dispatch rules that a store's broker followed, from its release, its configuration and its files."""

from mqtool.formats.config_files import batch_topics
from mqtool.records.dispatched import DispatchRules, rules_for
from mqtool.store.broker_config import BrokerConfig
from mqtool.store.metadata import Metadata


def rules_of(
    release: tuple[int, ...],
    config: BrokerConfig,
    metadata: Metadata,
    delay_levels: tuple[int, ...],
    further_batch_topics: "set[str] | frozenset[str]" = frozenset(),
) -> DispatchRules:
    """Returns the rules.

    Args:
        release: numbers of the broker's release.
        config: broker.conf.
        metadata: names topics with BatchConsumeQueues.
        delay_levels: delay of each level, ms.
        further_batch_topics: further topics with BatchConsumeQueues.
    """
    multi_dispatch = config.flag("enableMultiDispatch")
    return rules_for(
        release,
        # where nothing is configured the records tell: only a broker with it enabled adds the offsets
        multi_dispatch=True if multi_dispatch is None else multi_dispatch,
        delay_levels=delay_levels,
        batch_topics=batch_topics(metadata.topics) | further_batch_topics,
    )
