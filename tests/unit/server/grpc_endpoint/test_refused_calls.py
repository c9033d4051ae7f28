"""What is refused, with code and text: those that a real proxy 5.5.0 answered (`tests.support.grpc_refusals`)."""

import json
from pathlib import Path

import pytest

from mqtool.server.testing import MqServer
from tests.support.grpc_refusals import answers

pytestmark = pytest.mark.slow

RECORDED = {
    row.pop("label"): row
    for row in map(
        json.loads,
        (Path(__file__).parents[1] / "answers" / "refusals-proxy-5.5.0.jsonl").read_text("utf-8").splitlines(),
    )
}
OTHER = {
    "receive without settings": "INTERNAL_SERVER_ERROR",  # text of Java: settings is null
    "receive -1 messages": "INTERNAL_SERVER_ERROR",  # text of Java: Illegal Capacity
    "receive by 'a ='": "ILLEGAL_FILTER_EXPRESSION",  # the proxy's code is INTERNAL_SERVER_ERROR, or this one
}
"""Codes of calls that are answered with a text or code of our own."""


@pytest.fixture(scope="module")
def answered():
    with MqServer(enableLmq="true", enableMultiDispatch="true") as server:
        return dict(answers(server.endpoints, server.broker_address))


def test_all_calls_were_recorded(answered):
    assert list(answered) == list(RECORDED)


@pytest.mark.parametrize("label", RECORDED)
def test_a_call_is_refused_as_by_a_real_proxy(answered, label):
    expected = RECORDED[label] if label not in OTHER else answered[label] | {"code": OTHER[label]}
    assert answered[label] == expected
