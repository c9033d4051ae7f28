"""What keeps background services going: turns that fail, messages that are skipped, silent clients, files that fail."""

import asyncio
import json

import pytest

from mqtool.engine.config_files import ConfigFiles
from mqtool.engine.disk.files import Files
from mqtool.errors import ConfigFileError, FormatError, StoreError
from mqtool.formats import config_files
from mqtool.formats.release import V5_5
from mqtool.server.broker.pop.order import parse_order_infos
from mqtool.server.broker.tables.clients import Clients, Subscription
from mqtool.server.broker.tables.config_persister import ConfigPersister, MemoryConfigs
from mqtool.server.broker.tables.skipped import SkippedRecords
from mqtool.server.broker.tables.stats import Stats
from mqtool.server.broker.tasks import Tasks


def logged(caplog, words):
    return [record.getMessage() for record in caplog.records if words in record.getMessage()]


def test_a_turn_that_fails_is_logged_once_and_the_next_one_comes(monkeypatch, caplog):
    monkeypatch.setattr("mqtool.server.broker.tasks._AFTER_FAILURE_S", 0.0)
    turns = []

    def turn():
        turns.append(len(turns))
        if turns[-1] in (1, 2, 4):
            raise OSError("full")
        return 0.0

    async def main():
        tasks = Tasks()
        tasks.forever(turn)
        while len(turns) < 7:
            await asyncio.sleep(0)
        await tasks.stop()

    asyncio.run(main())
    assert [line.partition("error=")[2] for line in logged(caplog, "a turn failed")] == ["OSError('full')"] * 2


def test_work_at_intervals_goes_on_after_a_failure(monkeypatch, caplog):
    monkeypatch.setattr("mqtool.server.broker.tasks._SHORTEST_S", 0.0)
    turns = []

    async def work():
        turns.append(len(turns))
        if turns[-1] == 1:
            raise StoreError("is closed", "store")

    async def main():
        tasks = Tasks()
        tasks.every(lambda: 0.0, work)
        while len(turns) < 4:
            await asyncio.sleep(0)
        await tasks.stop()

    asyncio.run(main())
    assert len(logged(caplog, "a turn failed")) == 1


def test_a_service_that_ends_with_an_error_is_logged(caplog):
    async def fails():
        raise ValueError("unforeseen")

    async def main():
        tasks = Tasks()
        tasks.spawn(fails())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await tasks.stop()

    asyncio.run(main())
    assert logged(caplog, "a service ended") == ["a service ended error=ValueError('unforeseen')"]


def test_a_skipped_message_is_counted_and_logged_once_as_long_as_it_is_remembered(monkeypatch, caplog):
    monkeypatch.setattr("mqtool.server.broker.tables.skipped._REMEMBERED", 2)
    skipped = SkippedRecords()
    for offset in (1, 1, 2, 3, 1):
        skipped.note("timer", "T", 0, offset, "why")
    assert (skipped.counts["timer"], len(logged(caplog, "a message was skipped"))) == (4, 4)
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
