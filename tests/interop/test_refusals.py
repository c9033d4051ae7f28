"""The recorded answers of real brokers to what they refuse, and to batches for later, are still what they say."""

import json
from pathlib import Path

import pytest

from tests.support import batches_for_later
from tests.support.refusals import converse
from tests.support.tiers import night

pytestmark = pytest.mark.interop

ANSWERS = Path(__file__).parents[1] / "unit" / "server" / "answers"


def recorded(name):
    return list(map(json.loads, (ANSWERS / f"{name}.jsonl").read_text("utf-8").splitlines()))


def test_the_real_broker_refuses_as_recorded(rocketmq, tmp_path):
    broker = rocketmq("5.5.0").start_broker(tmp_path / "real", waitTimeMillsInSendQueue=10_000)
    assert converse(broker.address) == recorded("refusals-5.5.0")


@pytest.mark.parametrize("version", [night("4.9.7"), "5.5.0"])
def test_the_real_broker_answers_and_stores_batches_for_later_as_recorded(rocketmq, tmp_path, version):
    broker = rocketmq(version).start_broker(tmp_path / "real", waitTimeMillsInSendQueue=10_000)
    found = batches_for_later.converse(broker.address, has_inner=version != "4.9.7")
    assert found == recorded(f"batches-for-later-{version}")
