"""Dispatch rests between rounds, but not while somebody waits. The rest is made an hour long: only what ends it ends it."""

import threading

import pytest

from mqtool.server.broker import long_polling
from mqtool.server.broker.long_polling import Pace
from mqtool.server.testing import MqServer
from tests.support.remoting import Client, bodies
from tests.unit.server.broker.conftest import until
from tests.unit.server.broker.test_send import batch_of

HOUR = 3600.0


@pytest.fixture(autouse=True)
def long_rests(monkeypatch):
    monkeypatch.setattr(long_polling, "LONGEST_REST_S", HOUR)
    monkeypatch.setattr(long_polling, "SHORT_REST", 0)


def pause_ends(found: Pace) -> bool:
    """Whether a rest ends in less than an hour."""
    thread = threading.Thread(target=found.pause, daemon=True)
    thread.start()
    thread.join(30)
    return not thread.is_alive()


@pytest.mark.parametrize("what", ["wake", "stop"])
def test_a_pause_ends_when_somebody_waits_or_all_is_over(what):
    found = Pace()
    getattr(found, what)()
    assert pause_ends(found)


def test_one_wake_ends_one_pause():
    found, ended = Pace(), []

    def pause_twice() -> None:
        for number in range(2):
            found.pause()
            ended.append(number)

    found.wake()
    resting = threading.Thread(target=pause_twice, daemon=True)
    resting.start()
    until(lambda: ended == [0])
    resting.join(0.05)
    assert ended == [0]
    found.stop()
    resting.join(30)
    assert ended == [0, 1]


def test_a_held_pull_gets_its_message_while_dispatch_rests():
    with MqServer() as server, Client(server.broker_address) as client:
        client.put("T", b"first")
        until(lambda: server.call(lambda: server.broker.messages.dispatch_behind) == 0)
        held = client.send_pull("T", offset=1, hold_ms=30_000)
        until(lambda: server.call(lambda: server.broker.long_polling.count) == 1)
        client.put("T", b"second")
        assert bodies(client.answer(held)) == [b"second"]


def test_a_pull_that_comes_to_wait_has_what_was_put_before_dispatched():
    with MqServer() as server, Client(server.broker_address) as client:
        client.put("T", b"first")
        until(lambda: server.call(lambda: server.broker.messages.dispatch_behind) == 0)
        client.put("T", b"second")
        assert bodies(client.pull("T", offset=1, hold_ms=30_000)) == [b"second"]


@pytest.mark.slow
def test_a_held_pull_gets_what_was_flushed_while_dispatch_rests():
    with MqServer(flushDiskType="SYNC_FLUSH") as server, Client(server.broker_address) as client:
        client.put("T", b"first")
        until(lambda: server.call(lambda: server.broker.messages.dispatch_behind) == 0)
        held = client.send_pull("T", offset=1, hold_ms=30_000)
        until(lambda: server.call(lambda: server.broker.long_polling.count) == 1)
        for number in range(20):
            client.put("T", b"%d" % number)
            assert bodies(client.answer(held)) == [b"%d" % number]
            held = client.send_pull("T", offset=number + 2, hold_ms=30_000)


def test_who_pulls_without_waiting_finds_what_was_acknowledged_before():
    with MqServer() as server, Client(server.broker_address) as client:
        for number in range(5):
            client.put("T", b"%d" % number)
        assert bodies(client.pull("T")) == [b"0", b"1", b"2", b"3", b"4"]


def test_the_end_of_a_queue_counts_what_was_acknowledged_before():
    with MqServer() as server, Client(server.broker_address) as client:
        for number in range(3):
            client.put("T", b"%d" % number)
        assert client.call(30, topic="T", queueId=0).fields == {"offset": "3"}


def test_a_new_group_starts_before_what_is_sent_after_it_asked_for_its_offset():
    """Clients that find no offset ask for the end of the queue next (RebalancePushImpl.computePullFromWhere)."""
    with (
        MqServer() as server,
        Client(server.broker_address) as client,
        Client(server.broker_address) as other,
        Client(server.broker_address) as group,
    ):
        server.create_topic("T", queues=2)
        client.put("T", b"first")
        until(lambda: server.call(lambda: server.broker.messages.dispatch_behind) == 0)
        assert group.call(14, consumerGroup="GNew", topic="T", queueId=1).code == 22
        client.put("T", b"sent meanwhile", 1)
        assert group.call(30, topic="T", queueId=1).fields == {"offset": "0"}
        assert other.call(30, topic="T", queueId=1).fields == {"offset": "1"}


def test_who_pulls_without_waiting_finds_the_whole_of_an_acknowledged_batch():
    with MqServer() as server, Client(server.broker_address) as client:
        client.put("T", b"first")
        until(lambda: server.call(lambda: server.broker.messages.dispatch_behind) == 0)
        client.put("T", batch_of(*(b"%d" % number for number in range(30))), code=320, m="true")
        assert len(bodies(client.pull("T"))) == 31
