"""The recorded refusals of 5.5.0 are still what it says."""

import json
from pathlib import Path

import pytest

from tests.support.refusals import converse

pytestmark = pytest.mark.interop

RECORDED = Path(__file__).parents[1] / "unit" / "server" / "answers" / "refusals-5.5.0.jsonl"


def test_the_real_broker_refuses_as_recorded(rocketmq, tmp_path):
    broker = rocketmq("5.5.0").start_broker(tmp_path / "real", waitTimeMillsInSendQueue=10_000)
    assert converse(broker.address) == list(map(json.loads, RECORDED.read_text("utf-8").splitlines()))
