"""Options of the engine: numbers that no store can have, and what a broker's properties become."""

import pytest

from mqtool.engine import options
from mqtool.engine.options import StoreOptions, options_from_config
from mqtool.errors import UsageError
from mqtool.store.config.broker_config import BrokerConfig


@pytest.mark.parametrize("name", [name for name in options._MIN if name != "consume_queue_file_size"])
def test_a_number_below_the_least_is_refused(name):
    least = options._MIN[name]
    assert getattr(StoreOptions(**{name: least}), name) == least
    with pytest.raises(UsageError, match=f"{name}: expected at least {least}, found {least - 1}"):
        StoreOptions(**{name: least - 1})


@pytest.mark.parametrize(
    ("keys", "buffers"),
    [
        ({}, 0),
        ({"transientStorePoolSize": "3"}, 0),
        ({"transientStorePoolEnable": "true"}, 5),
        ({"transientStorePoolEnable": "true", "transientStorePoolSize": "3"}, 3),
    ],
)
def test_the_pool_has_the_buffers_that_a_broker_would_make(keys, buffers):
    assert options_from_config(BrokerConfig(keys, source="test")).pool_buffers == buffers
