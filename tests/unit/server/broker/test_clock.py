"""A clock that jumps by a day, forward or back, while a broker runs."""

import time

import pytest

from mqtool.server.testing import MqServer
from tests.support.remoting import Client, bodies
from tests.unit.server.broker.conftest import until

DAY_NS = 86_400 * 1_000_000_000


@pytest.fixture
def server():
    """One of its own: others would wait for the clock to come back."""
    with MqServer() as found:
        yield found


@pytest.fixture
def jump(monkeypatch):
    """Moves the time of day; what counts seconds is not moved."""
    real = time.time_ns

    def moved(days):
        monkeypatch.setattr(time, "time_ns", lambda: real() + days * DAY_NS)

    return moved


@pytest.mark.parametrize("days", [1, -1], ids=["forward", "back"])
def test_messages_go_on_and_what_is_delayed_comes(server, jump, days):
    with Client(server.broker_address) as client:
        assert client.put("Clock", b"before").code == 0
        assert client.put("Clock", b"delayed", properties={"DELAY": "1"}).code == 0
        until(lambda: bodies(client.pull("Clock")) == [b"before"] or len(bodies(client.pull("Clock"))) == 2)
        held = client.send_pull("Clock", 3, 0, hold_ms=20_000)
        jump(days)
        assert client.put("Clock", b"after", 3).code == 0
        assert bodies(client.answer(held)) == [b"after"]
        until(lambda: sorted(bodies(client.pull("Clock"))) == [b"before", b"delayed"])
        assert client.put("Clock", b"delayed again", 1, properties={"DELAY": "1"}).code == 0
        until(lambda: bodies(client.pull("Clock", 1)) == [b"delayed again"])
        assert client.heartbeat("c@1", consumers={"GClock": ["Clock"]}).code == 0
        assert client.call(38, consumerGroup="GClock").json["consumerIdList"] == ["c@1"]


def test_what_is_due_comes_at_once_after_a_jump_forward(server, jump):
    with Client(server.broker_address) as client:
        assert client.put("Due", b"timed", properties={"TIMER_DELAY_SEC": "3600"}).code == 0
        until(lambda: client.call(30, topic="rmq_sys_wheel_timer", queueId=0).fields["offset"] == "1")
        jump(1)
        until(lambda: bodies(client.pull("Due")) == [b"timed"])
