"""What keeps background services going: turns that fail, messages that are skipped, silent clients, files that fail."""

import asyncio
import json
from types import SimpleNamespace

import pytest

from mqtool.engine import Compat, PutResult, PutStatus, StoreOptions, open_store
from mqtool.engine.config_files import ConfigFiles
from mqtool.engine.disk.files import Files
from mqtool.engine.write.messages import OutgoingMessage
from mqtool.errors import ConfigFileError, FormatError, MessageRejectedError, StoreError, UsageError
from mqtool.formats import config_files, hosts
from mqtool.formats.hosts import Host
from mqtool.formats.release import V5_5
from mqtool.protocol import Command
from mqtool.server.broker.answers import QueueName
from mqtool.server.broker.broker import Broker
from mqtool.server.broker.clients import Clients, QueueLocks, Subscription
from mqtool.server.broker.config import BrokerSettings, ConfigPersister, MemoryConfigs
from mqtool.server.broker.messages import Writer, uninterrupted
from mqtool.server.broker.offsets import parse_order_infos
from mqtool.server.broker.pop.acks import _answered, _settle
from mqtool.server.broker.pop.check_points import Revive
from mqtool.server.broker.pull import _has_key
from mqtool.server.broker.service import BrokerService, Tasks, table
from mqtool.server.broker.stats import SkippedRecords, Stats, _Item
from mqtool.server.clock import ServerClock
from mqtool.server.testing import MqServer
from tests.support.remoting import Client
from tests.unit.server.broker.test_transactions import COMMIT, end, half


def logged(caplog, words):
    return [record.getMessage() for record in caplog.records if words in record.getMessage()]


def test_a_turn_that_fails_is_logged_once_and_the_next_one_comes(monkeypatch, caplog):
    monkeypatch.setattr("mqtool.server.broker.service.AFTER_FAILURE_S", 0.0)
    turns = []

    def turn():
        turns.append(len(turns))
        if turns[-1] in (1, 2, 4):
            raise OSError("full")
        return 0.0

    async def main():
        tasks = Tasks(ServerClock())
        tasks.forever(turn)
        while len(turns) < 7:
            await asyncio.sleep(0)
        await tasks.stop()

    asyncio.run(main())
    assert [line.partition("error=")[2] for line in logged(caplog, "service failed and will retry")] == [
        "OSError('full')"
    ] * 2


def test_work_at_intervals_goes_on_after_a_failure(monkeypatch, caplog):
    monkeypatch.setattr("mqtool.server.broker.service.SHORTEST_S", 0.0)
    turns = []

    async def work():
        turns.append(len(turns))
        if turns[-1] == 1:
            raise StoreError("is closed", "store")

    async def main():
        tasks = Tasks(ServerClock())
        tasks.every(lambda: 0.0, work)
        while len(turns) < 4:
            await asyncio.sleep(0)
        await tasks.stop()

    asyncio.run(main())
    assert len(logged(caplog, "service failed and will retry")) == 1


@pytest.mark.parametrize("error", [None, StoreError("the disk is full", "store")], ids=["result", "error"])
def test_work_that_must_not_be_interrupted_ends_though_its_task_is_cancelled(error):
    async def main():
        flushed = asyncio.get_running_loop().create_future()

        async def work():
            await flushed
            if error is not None:
                raise error
            return "stored"

        async def handle():
            return await uninterrupted(work()), await uninterrupted(asyncio.sleep(0, "cleaned up"))

        task = asyncio.ensure_future(handle())
        for _ in range(2):
            await asyncio.sleep(0)
            task.cancel()
        await asyncio.sleep(0)
        assert (task.done(), task.cancelling()) == (False, 0)
        flushed.set_result(None)
        return await task

    if error is None:
        assert asyncio.run(main()) == ("stored", "cleaned up")
    else:
        with pytest.raises(StoreError, match="the disk is full"):
            asyncio.run(main())


def test_a_service_that_ends_with_an_error_is_logged(caplog):
    async def fails():
        raise ValueError("unforeseen")

    async def main():
        tasks = Tasks(ServerClock())
        tasks.spawn(fails())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await tasks.stop()

    asyncio.run(main())
    assert logged(caplog, "service ended") == ["service ended error=ValueError('unforeseen')"]


def test_a_skipped_message_is_counted_and_logged_once_as_long_as_it_is_remembered(monkeypatch, caplog):
    monkeypatch.setattr("mqtool.server.broker.stats.REMEMBERED", 2)
    skipped = SkippedRecords()
    for offset in (1, 1, 2, 3, 1):
        skipped.note("timer", "T", 0, offset, "why")
    assert (skipped.counts["timer"], len(logged(caplog, "message skipped"))) == (4, 4)
    assert [one.queue_offset for one in skipped.newest] == [1, 3]


@pytest.mark.parametrize(
    ("error", "is_skipped"),
    [
        (FormatError("no time", layout="timer message"), True),
        (ZeroDivisionError("a bug"), True),
        (OSError("full"), False),
        (StoreError("is closed", "store"), False),
    ],
    ids=["message", "bug", "disk", "store"],
)
def test_a_service_skips_a_message_for_what_is_wrong_with_it_and_not_for_the_disk(error, is_skipped):
    skipped, raised = SkippedRecords(), None
    try:
        with skipped.guard("timer", "T", 0, 7):
            raise error
    except (OSError, StoreError) as found:
        raised = found
    assert raised is (None if is_skipped else error)
    assert [one.queue_offset for one in skipped.newest] == ([7] if is_skipped else [])


def test_clients_that_send_no_heartbeat_for_two_minutes_are_forgotten():
    now, told = [0.0], []
    clients = Clients(lambda group: told.append(group.client_ids()), lambda: now[0])
    silent, alive = object(), object()
    kinds = ("CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_FIRST_OFFSET")

    def consume(peer, name, *topics):
        subscriptions = [Subscription(topic) for topic in topics]
        client = clients.client_of(peer, name, "JAVA", 1)
        return clients.register_consumer("G", client, *kinds, subscriptions, notify=False)

    clients.register_producer("P", clients.client_of(silent, "a", "JAVA", 1))
    consume(silent, "a", "T", "U")
    now[0] = 100.0
    assert consume(alive, "b", "T"), "the group no longer subscribes to U"
    assert (clients.groups_of("T"), clients.groups_of("U")) == ({"G"}, set())
    now[0] = 120.0
    assert clients.expire() == []
    now[0] = 121.0
    assert clients.expire() == [silent]
    assert (clients.producers, clients.consumers["G"].client_ids(), told) == ({}, ["b"], [["b"]])


def test_totals_of_two_days_are_kept(monkeypatch):
    days = iter(["20260101", "20260102", "20260103"])
    monkeypatch.setattr("time.strftime", lambda _: next(days))
    stats = Stats(lambda: 0.0)
    stats.sample()
    stats.sample()
    assert sorted(stats._days) == ["20260102", "20260103"]


@pytest.mark.parametrize(
    "info",
    [None, {}, {"popTime": 1, "o": []}, {"popTime": "x", "o": [1]}, {"popTime": 1, "o": [1], "ot": [1]}],
    ids=["null", "empty", "no offset", "no time", "list of times"],
)
def test_an_entry_that_is_no_order_is_left_out(info):
    table = {"T@G": {"0": {"popTime": 5, "o": [3, 1]}, "1": info}}
    (found,) = parse_order_infos(json.dumps({"table": table}).encode())["T@G"].items()
    assert (found[0], found[1].offsets) == (0, [3, 4])


@pytest.mark.parametrize("table", [[1], {"T@G": 1}])
def test_a_file_without_a_table_of_orders_is_refused(table):
    with pytest.raises(FormatError, match="expected a table of tables"):
        parse_order_infos(json.dumps({"table": table}).encode())


def test_a_table_that_cannot_be_understood_stops_a_broker_and_not_one_that_only_reads(tmp_path, caplog):
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "consumerOffset.json").write_text("{")
    found = [kind(tmp_path, Files(), release=V5_5) for kind in (ConfigFiles, MemoryConfigs)]
    with pytest.raises(ConfigFileError):
        found[0].load("consumerOffset.json", config_files.parse_consumer_offsets)
    assert found[1].load("consumerOffset.json", config_files.parse_consumer_offsets) is None
    assert logged(caplog, "served without it")


class FullConfigs(ConfigFiles):
    """No file can be written while the disk is full."""

    is_full = True

    def save(self, name, data, *, durable=True):
        if self.is_full:
            raise OSError(28, "No space left on device")
        super().save(name, data, durable=durable)


def test_who_waits_for_a_table_that_cannot_be_written_gets_the_error_and_the_next_write_is_tried(tmp_path):
    async def main():
        configs = FullConfigs(tmp_path, Files(), release=V5_5)
        persister = ConfigPersister(configs, durable=True)
        persister.register("one.json", lambda: b"{}")
        persister.mark("one.json")
        with pytest.raises(OSError, match="No space left"):
            await persister.saved()
        configs.is_full = False
        persister.mark("one.json")
        await persister.saved()
        await persister.close()

    asyncio.run(main())
    assert (tmp_path / "config" / "one.json").read_bytes() == b"{}"


def test_a_silent_client_is_logged(caplog):
    caplog.set_level("INFO")
    gone = SimpleNamespace(address="10.0.0.9:4711")
    broker = SimpleNamespace(stats=SimpleNamespace(sample=lambda: None), clients=SimpleNamespace(expire=lambda: [gone]))
    BrokerService._housekeeping(SimpleNamespace(broker=broker))
    assert "client sends no heartbeats address=10.0.0.9:4711" in caplog.text


def test_a_producer_is_found_by_its_client_id():
    clients, one, other = Clients(lambda _group: None), object(), object()
    clients.register_producer("P", clients.client_of(one, "a", "JAVA", 1))
    clients.register_producer("Q", clients.client_of(other, "b", "JAVA", 1))
    assert [clients.peer_of(name) for name in ("a", "b", "c")] == [one, other, None]


def test_only_its_owner_unlocks_a_queue():
    locks, queue, other = QueueLocks(), QueueName("broker-a", 0, "T"), QueueName("broker-a", 1, "T")
    assert locks.lock("G", {queue}, "a") == {queue}
    locks.unlock("G", {queue, other}, "b")
    assert locks.lock("G", {queue}, "b") == set()
    locks.unlock("G", {queue, other}, "a")
    assert locks.lock("G", {queue}, "b") == {queue}


def test_a_number_of_the_settings_that_is_none_is_named():
    with pytest.raises(UsageError, match="maxMessageSize: expected a whole number, found 'much'"):
        BrokerSettings({"maxMessageSize": "much"})


def test_a_rate_is_that_of_the_time_since_the_sample_before_its_period(monkeypatch):
    item = _Item()
    for second in range(0, 80, 10):
        item.sample(float(second))
        item.total, item.times = item.total + 100, item.times + 1
    assert item.over(60, 70.0) == {"avgpt": 100.0, "sum": 800, "tps": 800 / 70}
    assert item.over(30, 70.0) == {"avgpt": 100.0, "sum": 500, "tps": 500 / 40}


def test_a_delayed_message_that_the_store_never_takes_is_told_from_one_that_it_does_not_take_now(tmp_path):
    with open_store(tmp_path, StoreOptions(compat=Compat.V5_5)) as store:
        writer = Writer(store, lambda *_: None, lambda: None)
        message = OutgoingMessage("T", 0, b"x", b"")
        assert writer.deliver(message).ok
        with pytest.raises(MessageRejectedError, match="the store refuses the message for topic T: MESSAGE_ILLEGAL"):
            writer.deliver(message._replace(body=bytes(5 << 20)))
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(store, "put", lambda *_, **__: PutResult(PutStatus.SERVICE_NOT_AVAILABLE))
            assert writer.deliver(message).status is PutStatus.SERVICE_NOT_AVAILABLE


@pytest.mark.slow
def test_with_sync_flush_the_end_of_a_transaction_is_answered_after_its_flush(tmp_path):
    with MqServer(tmp_path / "store", flushDiskType="SYNC_FLUSH") as server, Client(server.broker_address) as client:
        client.create_topic("T")
        where = half(client, "T")
        assert client.answer(end(client, where, COMMIT)).code == 0
        flushed = server.call(lambda: server.broker.engine._log.queue.flushed_offset)
        assert flushed == server.call(lambda: server.broker.messages.max_physical_offset)


def test_records_hold_the_address_of_a_broker_that_is_advertised_by_name(tmp_path):
    resolved = Host("10.1.2.3", 0)
    with open_store(tmp_path, StoreOptions(compat=Compat.V5_5, store_host=resolved)) as store:
        by_name, by_address = (
            Broker(store, BrokerSettings({}), address) for address in ("broker.example:10911", "10.9.9.9:10911")
        )
        assert hosts.parse(by_name.store_host) == Host("10.1.2.3", 10911)
        assert hosts.parse(by_address.store_host) == Host("10.9.9.9", 10911)
        without = SimpleNamespace(address="", attributes={})
        assert by_name.host_of(without) == by_name.store_host


@pytest.mark.parametrize("late", [False, True], ids=["at once", "later"])
def test_errors_of_a_handler_are_answers(late):
    async def later(_command, _peer):
        raise OSError(28, "No space left on device")

    def now(_command, _peer):
        raise StoreError("damaged", "store")

    (handle,) = table([SimpleNamespace(handlers=lambda: {1: later if late else now})]).values()

    async def main():
        found = handle(Command(1, opaque=7), None)
        return await found if late else found

    answer = asyncio.run(main())
    assert (answer.code, answer.opaque) == (1, 7)
    assert ("No space left on device" if late else "damaged") in answer.remark


def test_a_damaged_record_has_no_key():
    assert not _has_key(bytes(100), "T", "k", is_tag=False)


def test_an_acknowledgement_that_cannot_be_answered_does_not_keep_others_from_theirs(caplog):
    def fails(_error):
        raise ValueError("gone")

    answered = []
    _settle([(0, fails), (1, answered.append)], None)
    assert answered == [None]
    assert "an acknowledgement was not answered" in caplog.text


def test_an_acknowledgement_of_a_client_that_left_is_not_answered():
    async def main():
        gone, waiting = (asyncio.get_running_loop().create_future() for _ in range(2))
        gone.cancel()
        for future in (gone, waiting):
            _answered(Command(1), future, None)
        return gone.cancelled(), waiting.result().code

    assert asyncio.run(main()) == (True, 0)


def test_messages_of_the_revive_topic_with_other_tags_are_passed_over():
    queue = SimpleNamespace(points={})
    other = SimpleNamespace(properties={"TAGS": "other"}, record=SimpleNamespace(body=b"x", store_timestamp=0))
    Revive._note(SimpleNamespace(_broker=None), queue, other, 0)
    assert queue.points == {}


def test_without_force_a_broker_of_4_9_moves_no_offset_forward(tmp_path):
    with open_store(tmp_path / "store", StoreOptions(compat=Compat.V4_9)) as store:
        for _ in range(6):
            assert store.put("T", 0, b"x").ok
    with MqServer(tmp_path / "store") as server, Client(server.broker_address) as client:
        client.create_topic("T")
        client.call(200, json.dumps({"groupName": "G"}).encode())
        client.call(15, consumerGroup="G", topic="T", queueId=0, commitOffset=3)

        def reset(offset, force):
            fields = {"topic": "T", "group": "G", "queueId": 0, "timestamp": -1, "offset": offset, "isForce": force}
            assert client.call(222, **fields).code == 0
            return client.call(14, consumerGroup="G", topic="T", queueId=0).fields["offset"]

        assert [reset(5, False), reset(5, True), reset(1, False)] == ["3", "5", "1"]
