"""What a test does to a broker: its clock."""

import time

import pytest

from mqtool.errors import UsageError
from mqtool.server.testing import MqServer
from tests.support.remoting import Client, bodies
from tests.unit.server.broker.test_pop import pop
from tests.unit.server.broker.test_transactions import half

SECONDS = (1, 5, 10, 30, *range(60, 660, 60), 1200, 1800, 3600, 7200)
"""messageDelayLevel of a broker, in seconds."""
DAY_S = 86_400


@pytest.fixture(scope="module")
def server():
    with MqServer(fileReservedTime="72", mapedFileSizeCommitLog="65536") as found:
        yield found


@pytest.fixture
def client(server):
    with Client(server.broker_address) as found:
        yield found


def test_each_delay_level_comes_when_its_time_has_passed(server, client):
    for level in range(1, 19):
        assert client.put("Levels", b"%d" % level, properties={"DELAY": str(level)}).code == 0
    began = time.monotonic()
    passed = 0
    for level, seconds in enumerate(SECONDS, 1):
        server.clock.advance(seconds=seconds - passed)
        passed = seconds
        assert bodies(client.pull("Levels")) == [b"%d" % one for one in range(1, level + 1)]
    assert time.monotonic() - began < 30  # instead of two hours


def test_a_timer_of_three_days_comes_on_the_third_day(server, client):
    assert client.put("Days", b"3", properties={"TIMER_DELAY_SEC": str(3 * DAY_S - 60)}).code == 0
    server.clock.advance(days=2, hours=23)  # rolled once: the wheel has two days
    assert bodies(client.pull("Days")) == []
    server.clock.advance(hours=1)
    assert bodies(client.pull("Days")) == [b"3"]


def test_a_delivery_time_is_one_of_the_client_s_own_clock(server, client):
    server.clock.advance(days=1)
    due = str(int(time.time() * 1000) + 600_000)
    assert client.put("In-ten-minutes", b"10", properties={"TIMER_DELIVER_MS": due}).code == 0
    server.clock.advance(minutes=9)
    assert bodies(client.pull("In-ten-minutes")) == []
    server.clock.advance(minutes=1, seconds=1)  # a timer delivers what was due in the second before
    assert bodies(client.pull("In-ten-minutes")) == [b"10"]


def test_what_was_popped_comes_again_when_its_invisible_time_has_passed(server, client):
    assert client.put("Popped", b"again").code == 0
    assert bodies(pop(client, "Popped", invisible=3_600_000, poll=20_000)) == [b"again"]
    server.clock.advance(minutes=59)
    assert pop(client, "Popped").code == 210
    server.clock.advance(minutes=2)
    assert bodies(pop(client, "Popped")) == [b"again"]


def test_a_producer_is_asked_about_a_transaction_when_it_has_timed_out(server, client):
    client.heartbeat("tx@1", producers=("PTx",))
    half(client, "Undecided")
    server.clock.advance(minutes=1)
    assert bodies(client.request(39)) == [b"tx"]


def test_a_poll_ends_when_its_time_has_passed(server, client):
    client.create_topic("Empty")
    held = client.send_pull("Empty", hold_ms=25_000)
    began = time.monotonic()
    while server.call(lambda: server.broker.long_polling.count) == 0:
        time.sleep(0.001)
    server.clock.advance(seconds=25)
    assert client.answer(held).code == 19
    assert time.monotonic() - began < 20


def test_expired_messages_are_deleted_when_the_hour_of_deletion_has_passed(server, client):
    assert client.put("Old", b"first").code == 0
    server.clock.advance(days=1)
    for _ in range(3):
        assert client.put("Old", bytes(40_000)).code == 0  # a segment has one of these
    server.clock.advance(days=2, hours=12)
    assert bodies(client.pull("Old"))[0] == b"first"
    server.clock.advance(days=1)
    assert client.put("Old", b"last").code == 0
    last = client.call(30, topic="Old", queueId=0).fields["offset"]
    assert (client.call(31, topic="Old", queueId=0).fields["offset"], last) == ("3", "5")
    server.clock.advance(days=1)  # the last segment was written after the jumps, so it is new
    assert client.call(31, topic="Old", queueId=0).fields["offset"] == "3"


def test_a_clock_keeps_its_time_over_a_restart_and_is_set_by_a_reset():
    with MqServer() as server:
        server.clock.advance(days=1)
        server.restart()
        assert 86_000_000 < server.clock.now() - time.time() * 1000 < 86_500_000
        server.reset()
        assert abs(server.clock.now() - time.time() * 1000) < 60_000


def test_a_clock_does_not_go_back(server):
    with pytest.raises(UsageError, match="expected to advance by 0 seconds to 36500 days, found -60 seconds"):
        server.clock.advance(minutes=-1)
