"""Constants of the broker are spelled out in one module each, in `mqtool/formats`."""

import ast

import pytest

from mqtool.formats import codec, topics
from tests.house.modules import modules

HOMES = {
    codec.CRC_MASK: "codec.py",
    topics.SCHEDULE_TOPIC: "topics.py",
    topics.TIMER_TOPIC: "topics.py",
    topics.HALF_TOPIC: "topics.py",
    topics.OP_TOPIC: "topics.py",
    topics.RETRY_PREFIX: "topics.py",
    topics.DEAD_LETTER_PREFIX: "topics.py",
    topics.LMQ_PREFIX: "topics.py",
}
TEXTS = tuple(value for value in HOMES if isinstance(value, str))


def spelled_out(literal):
    """The constant that a literal is, or begins with; None for any other literal."""
    if type(literal) is int:
        return codec.CRC_MASK if literal == codec.CRC_MASK else None
    text = literal.decode("latin-1") if isinstance(literal, bytes) else literal
    return next((value for value in TEXTS if text.startswith(value)), None) if isinstance(text, str) else None


@pytest.mark.slow
def test_a_constant_of_the_broker_has_one_home():
    places = {
        (value, module.path.name)
        for module in modules()
        for node in module.nodes
        if isinstance(node, ast.Constant) and (value := spelled_out(node.value)) is not None
    }
    assert places == set(HOMES.items())
