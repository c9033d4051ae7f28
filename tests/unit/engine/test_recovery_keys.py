"""The keys of broker.conf that decide what recovery does: the engine and a forecast take them in the same way."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from mqtool.engine import Compat, StoreOptions, open_store, options_from_config
from mqtool.engine.start import recovery_executor
from mqtool.recovery import predict, settings
from mqtool.store.config.broker_config import load
from tests.support.engine import HeldClock
from tests.unit.recovery.stores import patch

FLAGS = [
    "checkCRCOnRecover",
    "forceVerifyPropCRC",
    "checkCommitLogOffsetOnRecover",
    "messageIndexEnable",
    "messageIndexSafe",
    "indexFileWriteEnable",
    "recheckReputOffsetFromCq",
    "enableMultiDispatch",
    "enableLmq",
]
ROLE = {"is_master", "is_slave", "timer_wheel", "timer_log_size", "compaction_sizes"}
"""The engine always opens a store as a master does, without timer and compacted topics."""
FOUND = {"evidence", "unmodelled_parts", "dledger", "has_further_queues"}
"""What only a forecast says of the files."""

keys = st.fixed_dictionaries(
    {},
    optional={
        **{name: st.sampled_from(["true", "false"]) for name in FLAGS},
        "commitLogRecoverMaxNum": st.sampled_from(["0", "3", "20"]),
        "messageDelayLevel": st.sampled_from(["1s 5s", "1h"]),
        "flushDiskType": st.sampled_from(["SYNC_FLUSH", "ASYNC_FLUSH"]),
    },
)


@given(keys, st.sampled_from([Compat.V4_9, Compat.V5_5]))
def test_the_engine_recovers_by_the_keys_that_a_forecast_goes_by(values, compat):
    config = load(values)
    options = options_from_config(config, StoreOptions(compat=compat))
    with TemporaryDirectory() as directory:
        root = Path(directory)
        opened = recovery_executor.settings_of(root, options, (root / "commitlog",))
        forecast = settings.settings_of(root, options.release, config, whole_broker=False)
    assert fields_of(opened) == fields_of(forecast)


def fields_of(found: settings.RecoverySettings) -> dict[str, object]:
    """What both know."""
    return {name: value for name, value in structs.asdict(found).items() if name not in ROLE | FOUND}


@pytest.mark.parametrize(("key", "end"), [("true", 5), ("false", 10)])
def test_a_changed_body_ends_the_log_if_crcs_are_checked(in_memory, key, end):
    root, values = in_memory / "store", {"checkCRCOnRecover": key, "mappedFileSizeCommitLog": 1 << 16}
    options = options_from_config(load(values))
    with open_store(root, options, clock=HeldClock(), background=False) as store:
        places = [store.put("T", 0, b"x" * 50).physical_offset for _ in range(10)]
        size = places[1]
    patch(root / "commitlog" / f"{0:020}", places[5] + 100, b"y")
    (root / "abort").touch()
    assert predict(root, "5.5", values).after_start == (0, end * size)
    with open_store(root, options, clock=HeldClock(), background=False) as store:
        assert store.max_physical_offset == end * size
