"""What a background service delivers while the store refuses it, as with a full disk: it comes later, and once."""

import pytest

from mqtool.engine import PutResult, PutStatus
from mqtool.server.testing import MqServer
from tests.support.remoting import records
from tests.unit.server.broker.conftest import until
from tests.unit.server.broker.test_pop import fill, pop, pop_until

TIMES = 3


@pytest.fixture(scope="module")
def server():
    with MqServer(messageDelayLevel="1s", timerPrecisionMs="100") as found:
        yield found


@pytest.fixture
def refused(server, monkeypatch):
    """Deliveries that the store has refused: the first three of each message."""
    deliver, seen = server.broker.writer.deliver, []

    def refusing(message):
        if seen.count(message.body) < TIMES:
            seen.append(message.body)
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE)
        return deliver(message)

    monkeypatch.setattr(server.broker.writer, "deliver", refusing)
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("more", [{"DELAY": "1"}, {"TIMER_DELAY_MS": "250"}], ids=["delay level", "timer"])
def test_messages_for_later_come_when_the_store_accepts_them_again(client, topic, refused, more):
    for body in (b"first", b"second"):
        assert client.put(topic, body, properties=more).code == 0
    until(lambda: client.call(30, topic=topic, queueId=0).fields["offset"] == "2")
    assert [body for _, body in records(client.pull(topic))] == [b"first", b"second"]
    assert (refused.count(b"first"), refused.count(b"second")) == (TIMES, TIMES)


@pytest.mark.slow
def test_popped_messages_come_again_when_the_store_accepts_them_again(client, topic, refused):
    fill(client, topic, 1)
    pop(client, topic, invisible=100, group="GRefused")
    ((facts, body),) = pop_until(client, topic, 1, group="GRefused")
    assert (body, facts["reconsume_times"], refused.count(b"p0")) == (b"p0", 1, TIMES)
