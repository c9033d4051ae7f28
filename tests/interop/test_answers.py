"""The driver that asks the real RocketMQ is itself right: it repeats the answers that came with the fixtures."""

from collections import Counter

import pytest

from tests.support.stores import answered, answers, copy_store, store_fixture
from tests.support.tiers import night

pytestmark = [pytest.mark.interop, pytest.mark.slow]

NAMES = ["orders-4.9.7", "orders-5.5.0", *map(night, ("crash-5.5.0", "rollover-4.9.7", "hosts-5.5.0", "propcrc-5.5.0"))]


@pytest.mark.parametrize("name", NAMES)
def test_the_real_store_repeats_every_recorded_answer(name, rocketmq, tmp_path):
    fixture = store_fixture(name)
    assert fixture in answered("messages", "gets", "queries", "times")
    recorded = {kind: answers(name, kind) for kind in ("messages", "gets", "queries", "times")}
    found = rocketmq(fixture.version).answers(
        copy_store(name, tmp_path),
        fixture.config,
        work=tmp_path / "work",
        gets=recorded["gets"],
        queries=recorded["queries"],
        times=recorded["times"],
    )
    for kind, rows in recorded.items():
        assert found[kind] == rows, kind


@pytest.mark.parametrize("name", [night("orders-4.9.7"), "orders-5.5.0"])
def test_the_real_store_serves_every_unit_of_every_queue(name, rocketmq, tmp_path):
    fixture = store_fixture(name)
    found = rocketmq(fixture.version).answers(copy_store(name, tmp_path), fixture.config, work=tmp_path / "work")
    served = {(row["topic"], row["queueId"]): row["served"] for row in found["queues"] if row["served"]}
    units = {
        (row["topic"], row["queueId"]): [unit[1] for unit in row["units"]]
        for row in answers(name, "queues")
        if row["units"]
    }
    assert served == units


def test_a_store_on_several_paths_is_opened_whole(rocketmq, tmp_path):
    fixture = store_fixture("multipath-5.5.0")
    found = rocketmq("5.5.0").answers(copy_store(fixture.name, tmp_path), fixture.config, work=tmp_path / "work")
    queues = Counter(row["topic"] for row in answers(fixture.name, "messages") if row["kind"] == "message")
    assert Counter(row["topic"] for row in found["messages"]) >= queues
