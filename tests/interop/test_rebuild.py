"""The real RocketMQ opens a store whose derived files were made anew, and answers as before."""

import shutil

import pytest

import mqtool
from mqtool.rebuild.job import KINDS, rebuild
from mqtool.rebuild.metadata import compose, survey_log, write
from mqtool.rebuild.settings import settings_of
from mqtool.store.queues.filter_bit_maps import bit_maps_of
from tests.support.stores import answers, copy_store, shape_keys, store_fixture
from tests.support.tiers import night

pytestmark = [pytest.mark.interop, pytest.mark.slow]

NAMES = [
    "rollover-4.9.7",
    "hosts-5.5.0",
    "v2-long-topic",
    *map(night, ("orders-4.9.7", "orders-5.5.0", "propcrc-5.5.0")),
]


def rebuilt(name, tmp_path):
    """A copy of a store with every derived file replaced by a rebuilt one."""
    root = copy_store(name, tmp_path)
    with mqtool.open(root, store_fixture(name).config) as store:
        settings = settings_of(store)
        bit_maps = bit_maps_of(store) if settings.has_extension else None
        assert rebuild(store, tmp_path / "made", settings, bit_maps=bit_maps).is_complete
    for kind in KINDS:
        shutil.rmtree(root / kind, ignore_errors=True)
        if (tmp_path / "made" / kind).exists():
            shutil.move(tmp_path / "made" / kind, root / kind)
    return root


@pytest.mark.parametrize("name", NAMES)
def test_the_real_store_answers_as_before(name, rocketmq, tmp_path):
    fixture = store_fixture(name)
    recorded = {kind: answers(name, kind) for kind in ("messages", "gets", "queries", "times")}
    found = rocketmq(fixture.version).answers(
        rebuilt(name, tmp_path),
        fixture.config,
        work=tmp_path / "work",
        gets=recorded["gets"],
        queries=recorded["queries"],
        times=recorded["times"],
    )
    for kind, rows in recorded.items():
        assert found[kind] == rows, kind


@pytest.mark.parametrize("version", ["4.9.7", night("5.5.0")])
def test_a_broker_starts_on_rebuilt_files_and_rebuilt_configuration(version, rocketmq, tmp_path):
    name = f"orders-{version}"
    root = rebuilt(name, tmp_path)
    shutil.rmtree(root / "config")
    (root / "checkpoint").unlink()
    config = store_fixture(name).config
    with mqtool.open(root, config) as store:
        write(compose(store, survey_log(store, settings_of(store, version[:3]).rules)), root)
    message = next(row for row in answers(name, "messages") if (row["topic"], row["queueId"]) == ("Orders", 1))
    broker = rocketmq(version).start_broker(tmp_path, **shape_keys(config))
    printed = broker.admin("queryMsgByOffset", "-b", "broker-a", "-t", "Orders", "-i", "1", "-o", "0")
    assert message["properties"]["UNIQ_KEY"] in printed, printed
    assert "Orders" in broker.admin("topicList")
    broker.stop()
    assert not (broker.store / "abort").exists()
