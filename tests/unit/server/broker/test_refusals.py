"""What is refused, with the code and in the words of the real 5.5.0, whose answers were recorded."""

import json
from pathlib import Path

import pytest

from mqtool.server.testing import MqServer
from tests.support.refusals import JAVA, converse, talk
from tests.support.tables import in_parts

RECORDED = {
    row["label"]: row
    for row in map(
        json.loads, (Path(__file__).parents[1] / "answers" / "refusals-5.5.0.jsonl").read_text("utf-8").splitlines()
    )
}

OURS = {
    "send, no group": 1,  # the real one does without
    "send nothing": 0,  # the real one stumbles over it; its clients send no such message
    "make no group": 1,  # the real one says that it was done
}
"""Where we mean to answer with another code."""

LESS = {
    "send, a queue beyond": "request queueId[99] is illegal, TopicConfig [topicName=Refused, readQueueNums=4, writeQueueNums=4",
    "send, properties too long": "the message is illegal, maybe msg body or properties length not matched. msg ",
    "send too much": "the message is illegal, maybe msg body or properties length not matched.",
    "send a delayed batch to Batches": "the message is illegal, maybe msg body or properties length not matched.",
    "send a delayed batch to Refused": "the message is illegal, maybe msg body or properties length not matched.",
    "send a batch with a timer to batch queues": "the message is illegal, maybe msg body or properties length not matched.",
    "send, a timer too far": "timer message illegal, the delay time should not be bigger than the max delay",
    "send, a timer that is not a time": "timer message illegal, the delay time should not be bigger than the max delay",
}
"""Where the real broker says more: what both say."""


@pytest.fixture(scope="module", params=[True, False], ids=["fast sends", "ordinary sends"])
def answers(request):
    with MqServer(fast_sends=request.param, enablePropertyFilter="false", recallMessageEnable="false") as server:
        return {row["label"]: row for row in converse(server.broker_address)}


def test_everything_that_is_asked_was_recorded():
    assert list(RECORDED) == [said.label for said in talk()]


@in_parts("label", [said.label for said in talk()], size=200)
def test_the_answer_is_the_real_broker_s(answers, label):
    found, expected = answers[label], RECORDED[label]
    if label in OURS:
        assert (found["code"], expected["code"]) == (OURS[label], 1 - OURS[label])
        return
    assert found["code"] == expected["code"]
    if expected["remark"] == JAVA:  # ours names the field, or what is wrong with the body
        assert any(word in found["remark"] for word in ("custom field <", "body", "extraInfo"))
    elif label in LESS:
        assert found["remark"].startswith(LESS[label])
        assert expected["remark"].startswith(LESS[label])
    else:
        assert found["remark"] == expected["remark"]
