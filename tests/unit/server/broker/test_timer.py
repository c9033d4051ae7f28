"""Timer messages: parked, filed in the wheel as the real broker files them, delivered at their time, taken back."""

import os
import shutil
import time
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from mqtool.engine import AppendStatus, Compat, PutResult, PutStatus, StoreOptions, open_store
from mqtool.engine.write.messages import OutgoingMessage
from mqtool.errors import LayoutError, StoreError, UsageError
from mqtool.formats import commit_log, properties, timer
from mqtool.formats.timer import TimerMagic
from mqtool.formats.topics import TIMER_TOPIC
from mqtool.protocol.command import RequestCode
from mqtool.server.broker.config import BrokerSettings
from mqtool.server.broker.delay import RecallHandle, Timer
from mqtool.server.broker.stats import SkippedRecords
from mqtool.server.broker.timer_files import TimerFiles
from mqtool.server.clock import ServerClock
from mqtool.server.testing import MqServer
from tests.support.remoting import Client, bodies, records
from tests.support.stores import copy_store
from tests.unit.server.broker.conftest import until

SMALL_LOG = 10 * timer.LOG_UNIT_SIZE


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.mark.slow
@pytest.mark.parametrize("name", ["TIMER_DELIVER_MS", "TIMER_DELAY_MS"])
def test_a_message_comes_at_its_time_and_not_before(client, topic, name):
    due = now_ms() + 1200
    client.put(topic, b"on time", properties={name: str(due if name == "TIMER_DELIVER_MS" else 1200)})
    ((facts, body),) = records(client.pull(topic, hold_ms=20_000))
    assert (body, facts["properties"]["REAL_TOPIC"]) == (b"on time", topic)
    assert facts["stored"] >= due


def test_a_time_that_is_over_means_now(client, topic):
    client.put(topic, b"late already", properties={"TIMER_DELIVER_MS": str(now_ms() - 5)})
    until(lambda: client.pull(topic).code == 0)
    assert bodies(client.pull(topic)) == [b"late already"]


def test_a_property_whose_name_ends_like_one_of_the_timer_changes_nothing(client, topic):
    answer = client.put(topic, b"later", properties={"MY_TIMER_OUT_MS": "1", "TIMER_DELAY_SEC": "60"})
    assert (answer.code, "recallHandle" in answer.fields) == (0, True)
    assert client.pull(topic).code != 0


def test_more_than_three_days_is_refused(client, topic):
    assert client.put(topic, properties={"TIMER_DELAY_SEC": str(3 * 86_400 + 10)}).code == 13


@pytest.mark.slow
def test_a_message_that_is_recalled_does_not_come(client, topic):
    handle = client.put(topic, b"never", properties={"TIMER_DELAY_MS": "1500"}).fields["recallHandle"]
    assert client.call(370, producerGroup="P", topic=topic, recallHandle=handle).code == 0
    client.put(topic, b"witness", properties={"TIMER_DELAY_MS": "2600"})
    assert bodies(client.pull(topic, hold_ms=20_000)) == [b"witness"]


@pytest.mark.parametrize(("with_topic", "name"), [("false", "{key}"), ("true", "{topic}+{key}")])
def test_a_recall_names_its_message_as_the_configured_broker_does(with_topic, name):
    keys = {"recallMessageEnable": "true", "appendTopicForTimerDeleteKey": with_topic}
    with MqServer(**keys) as server, Client(server.broker_address) as client:
        sent = client.put("T", b"never", properties={"TIMER_DELAY_SEC": "60"})
        assert client.call(370, producerGroup="P", topic="T", recallHandle=sent.fields["recallHandle"]).code == 0
        until(lambda: server.call(lambda: server.broker.messages.dispatch_behind) == 0)
        found = server.call(lambda: server.broker.messages.get_message("rmq_sys_wheel_timer", 0, 1, 1).records)
    named = properties.decode(commit_log.parse_record(found[0]).properties)["TIMER_DEL_UNIQKEY"]
    assert named == name.format(topic="T", key=sent.fields["transactionId"])


def let_pass(server, client, clock, ms):
    """Sets the timer's clock forward by 50 ms, waits until the timer has nothing left to do, and so on."""

    def is_idle():
        done = timer.parse_checkpoint(client.call(RequestCode.GET_TIMER_CHECK_POINT).body)
        end = server.call(lambda: server.broker.messages.queue_bounds("rmq_sys_wheel_timer", 0)[1])
        is_dispatched = server.call(lambda: server.broker.messages.dispatch_behind) == 0
        is_read = clock.ms - done.last_read_time_ms < 100  # timerPrecisionMs
        return is_dispatched and is_read and done.last_timer_queue_offset == end

    for _ in range(ms // 50):
        clock.ms += 50
        until(is_idle)


def test_a_recall_is_rolled_with_its_message(tmp_path, monkeypatch):
    clock = SimpleNamespace(ms=now_ms())
    monkeypatch.setattr(ServerClock, "now", lambda _self: clock.ms)
    monkeypatch.setattr("mqtool.server.broker.delay.PERIOD_S", 0.02)
    keys = {"timerPrecisionMs": "100", "timerRollWindowSlot": "3", "recallMessageEnable": "true"}
    with MqServer(tmp_path / "store", **keys) as server, Client(server.broker_address) as client:
        handle = client.put("Later", b"never", properties={"TIMER_DELAY_MS": "1500"}).fields["recallHandle"]
        let_pass(server, client, clock, 150)
        assert client.call(370, producerGroup="P", topic="Later", recallHandle=handle).code == 0
        client.put("Later", b"witness", properties={"TIMER_DELAY_MS": "2000"})
        let_pass(server, client, clock, 2300)
        assert bodies(client.pull("Later")) == [b"witness"]


@pytest.mark.parametrize(("allowed", "code"), [("true", 0), ("false", 14)])
def test_a_broker_that_is_drained_recalls_messages_if_it_may(client, topic, allowed, code):
    handle = client.put(topic, b"never", properties={"TIMER_DELAY_MS": "600000"}).fields["recallHandle"]
    client.call(25, f"brokerPermission=4\nallowRecallWhenBrokerNotWriteable={allowed}\n".encode())
    try:
        assert client.call(370, producerGroup="P", topic=topic, recallHandle=handle).code == code
    finally:
        client.call(25, b"brokerPermission=6\nallowRecallWhenBrokerNotWriteable=true\n")


@pytest.mark.parametrize(
    "handle", ["", "no base64!", "djEgYQ==", "djEgYSBiIGMgZA=="], ids=["empty", "no base64", "too short", "no time"]
)
def test_a_handle_that_is_none_is_refused(client, topic, handle):
    assert client.call(370, topic=topic, recallHandle=handle).code in (1, 604)


@pytest.fixture
def files(tmp_path):
    with_log = TimerFiles(tmp_path, 1000, SMALL_LOG)
    yield with_log
    with_log.close()


def test_units_of_a_slot_come_in_order_across_files(files):
    for number in range(25):
        files.add(60_000 if number % 2 else 61_000, 50_000, TimerMagic.DEFAULT, number, 100, 7)
    assert [unit.physical_offset for unit in files.units(60_000)] == list(range(1, 25, 2))
    assert [unit.physical_offset for unit in files.units(61_000)] == list(range(0, 25, 2))
    assert files.slot(60_000).count == 12
    assert files.last_unit().physical_offset == 24


def test_what_was_added_is_in_the_files_after_a_write_and_the_log_comes_first(tmp_path, monkeypatch):
    first = TimerFiles(tmp_path, 1000, SMALL_LOG)
    for number in range(3):
        first.add(60_000, 50_000, TimerMagic.DEFAULT, number, 100, 7)
    killed = TimerFiles(tmp_path, 1000, SMALL_LOG)
    assert (killed.units(60_000), killed.end) == ([], 0)
    killed.close()
    writes, pwrite = [], os.pwrite

    def noted(descriptor, data, place):
        writes.append(len(data))
        return pwrite(descriptor, data, place)

    monkeypatch.setattr(os, "pwrite", noted)
    first.write()
    assert writes == [3 * timer.LOG_UNIT_SIZE, timer.SLOT_SIZE]
    second = TimerFiles(tmp_path, 1000, SMALL_LOG)
    assert [unit.physical_offset for unit in second.units(60_000)] == [0, 1, 2]
    second.close()
    first.close()


def test_a_slot_of_another_time_is_empty(files):
    files.add(60_000, 50_000, TimerMagic.DEFAULT, 1, 100, 7)
    assert files.units(60_000 + timer.WHEEL_SLOTS * 1000) == []


def test_what_the_wheel_missed_is_filed_again_from_the_log(tmp_path):
    first = TimerFiles(tmp_path, 1000, SMALL_LOG)
    for number in range(15):
        first.add(60_000, 50_000, TimerMagic.DEFAULT, number, 100, 7)
    first.close()
    (tmp_path / "timerwheel").unlink()
    second = TimerFiles(tmp_path, 1000, SMALL_LOG)
    assert [unit.physical_offset for unit in second.units(60_000)] == list(range(15))
    assert second.end == first.end
    second.close()


EXTREMES = (-(1 << 63), -7, 1 << 62, (1 << 63) - 1)


@pytest.mark.parametrize("name", ["\u00b2", "7", "9" * 20, "00000000000000000007"])
def test_a_name_that_is_no_offset_of_a_log_file_is_a_stray(tmp_path, name):
    first = TimerFiles(tmp_path, 1000, SMALL_LOG)
    first.add(60_000, 50_000, TimerMagic.DEFAULT, 3, 100, 7)
    first.close()
    (tmp_path / "timerlog" / name).write_bytes(bytes(100))
    second = TimerFiles(tmp_path, 1000, SMALL_LOG)
    assert [unit.physical_offset for unit in second.units(60_000)] == [3]
    second.close()


@pytest.mark.parametrize("value", EXTREMES)
@pytest.mark.parametrize("where", ["slot", "unit", "checkpoint"])
def test_hostile_numbers_in_slots_units_and_checkpoint_end_no_service(tmp_path, where, value):
    first = TimerFiles(tmp_path, 1000, SMALL_LOG)
    first.add(60_000, 50_000, TimerMagic.DEFAULT, 3, 100, 7)
    first.save(0, 0)
    first.close()
    places = {
        "slot": (
            tmp_path / "timerwheel",
            timer.slot_index(60_000) * timer.SLOT_SIZE,
            ("first_position", "last_position"),
        ),
        "unit": (tmp_path / "timerlog" / ("0" * 20), 0, ("previous_position", "write_time")),
        "checkpoint": (tmp_path / "config" / "timercheck", 0, ("last_timer_log_flush_position",)),
    }
    path, start, fields = places[where]
    layout = {"slot": timer.SLOT, "unit": timer.LOG_UNIT, "checkpoint": timer.CHECKPOINT}[where]
    with path.open("r+b") as file:
        for field in fields:
            file.seek(start + layout.offset(field))
            file.write(value.to_bytes(8, "big", signed=True))
    second = TimerFiles(tmp_path, 1000, SMALL_LOG)
    second.add(61_000, 50_000, TimerMagic.DEFAULT, 4, 100, 7)
    assert len(second.units(60_000)) <= 1
    assert [unit.physical_offset for unit in second.units(61_000)] == [4]
    assert second.last_unit().physical_offset == 4
    second.close()


def test_serve_continues_timer_log_files_of_another_size_than_the_default(tmp_path):
    due = now_ms() // 1000 * 1000 + 3_600_000
    files = TimerFiles(tmp_path / "store", 1000, SMALL_LOG)
    for number in range(25):
        files.add(due, due - 3_600_000, TimerMagic.DEFAULT, number, 100, 7)
    files.close()
    with MqServer(tmp_path / "store"):
        pass
    log = tmp_path / "store" / "timerlog"
    assert {path.stat().st_size for path in log.iterdir()} == {SMALL_LOG}
    again = TimerFiles(tmp_path / "store", 1000, SMALL_LOG)
    assert [unit.physical_offset for unit in again.units(due)] == list(range(25))
    again.close()


@pytest.mark.parametrize(
    ("name", "expected"),
    [("timerlog/00000000000000000000", SMALL_LOG), ("timerwheel", timer.WHEEL_FILE_SIZE)],
    ids=["log", "wheel"],
)
@pytest.mark.parametrize("more", [-8, 8], ids=["shorter", "longer"])
def test_a_file_of_another_size_than_the_others_is_refused_and_not_changed(tmp_path, name, expected, more):
    first = TimerFiles(tmp_path, 1000, SMALL_LOG)
    for number in range(25):
        first.add(60_000, 50_000, TimerMagic.DEFAULT, number, 100, 7)
    first.close()
    os.truncate(tmp_path / name, expected + more)
    with pytest.raises(LayoutError, match=f"expected {expected} bytes.*, found {expected + more}"):
        TimerFiles(tmp_path, 1000, SMALL_LOG)
    assert (tmp_path / name).stat().st_size == expected + more


def test_a_file_that_was_created_and_not_filled_is_used(tmp_path):
    first = TimerFiles(tmp_path, 1000, SMALL_LOG)
    first.add(60_000, 50_000, TimerMagic.DEFAULT, 3, 100, 7)
    first.close()
    (tmp_path / "timerlog" / f"{SMALL_LOG:020}").touch()
    second = TimerFiles(tmp_path, 1000, SMALL_LOG)
    for number in range(20):
        second.add(60_000, 50_000, TimerMagic.DEFAULT, number, 100, 7)
    assert [unit.physical_offset for unit in second.units(60_000)] == [3, *range(20)]
    second.close()


def test_the_last_unit_of_a_log_whose_next_file_is_empty_is_in_the_file_before(tmp_path):
    first = TimerFiles(tmp_path, 1000, SMALL_LOG)
    for number in range(10):
        first.add(60_000, 50_000, TimerMagic.DEFAULT, number, 100, 7)
    first.close()
    os.truncate(tmp_path / "timerlog" / f"{SMALL_LOG:020}", 0)  # a kill came before its first unit was written
    second = TimerFiles(tmp_path, 1000, SMALL_LOG)
    assert (second.end, second.last_unit().physical_offset) == (SMALL_LOG, 8)
    second.close()


def test_files_of_the_log_go_when_their_messages_are_gone(files, tmp_path):
    for number in range(30):
        files.add(60_000, 50_000, TimerMagic.DEFAULT, number * 100, 100, 7)
    before = len(list((tmp_path / "timerlog").iterdir()))
    files.expire(1500)
    assert 1 < len(list((tmp_path / "timerlog").iterdir())) < before
    assert [unit.physical_offset for unit in files.units(60_000)][-1] == 2900


def test_a_turn_deletes_files_of_the_log_whose_messages_have_expired(tmp_path, monkeypatch):
    with open_store(tmp_path, StoreOptions(compat=Compat.V5_5)) as store:
        messages = SimpleNamespace(
            get_message=lambda *_: store.get_message("none", 0, 0, 1),
            message_at=lambda _: None,
            queue_bounds=lambda *_: (0, 0),
            min_physical_offset=0,
        )
        settings = BrokerSettings({"mappedFileSizeTimerLog": str(SMALL_LOG)})
        writer = SimpleNamespace(rewrites=[])
        timed = Timer(
            SimpleNamespace(
                messages=messages,
                settings=settings,
                writer=writer,
                root=tmp_path,
                release=(5, 5),
                clock=ServerClock(),
            )
        )
        timed.start()
        due = now_ms() + 3_600_000
        for number in range(30):
            timed._files.add(due - due % 1000, due, TimerMagic.DEFAULT, number * 100, 100, 7)
        timed.turn()
        before = len(list((tmp_path / "timerlog").iterdir()))
        messages.min_physical_offset = 1500
        timed.turn()
        assert len(list((tmp_path / "timerlog").iterdir())) == before
        monkeypatch.setattr(time, "monotonic", lambda: timed._next_expiry)
        timed.turn()
        assert 1 < len(list((tmp_path / "timerlog").iterdir())) < before
        timed.close()


class Timed:
    """A timer over a store, whose deliveries are kept; slots from three seconds ago on are not delivered yet."""

    def __init__(self, root, store):
        self.delivered, self.results, self.damaged = [], [], {}
        self.messages = SimpleNamespace(
            get_message=store.get_message,
            message_at=lambda offset: self.damaged.get(offset) or store.message_at(offset),
            queue_bounds=store.queue_bounds,
            min_physical_offset=0,
        )
        keys = {"mappedFileSizeTimerLog": str(SMALL_LOG), "timerRocksDBEnable": "false"}
        self.skipped = SkippedRecords()
        self.timer = Timer(
            SimpleNamespace(
                messages=self.messages,
                settings=BrokerSettings(keys),
                writer=SimpleNamespace(rewrites=[], deliver=self._deliver),
                root=root,
                release=(5, 5),
                clock=ServerClock(),
                skipped=self.skipped,
                stats=SimpleNamespace(put=lambda *_: None),
                store_host=b"\x7f\0\0\1\0\0\0\1",
            )
        )
        self.due = now_ms() // 1000 * 1000 - 3000
        self.files = TimerFiles(root, 1000, SMALL_LOG)
        self.files.save(self.due, 0)

    def file(self, physical_offset, magic=TimerMagic.DEFAULT):
        """Adds a unit to the slot that is delivered next."""
        self.files.add(self.due, self.due - 1000, magic, physical_offset, 100, 7)

    def start(self):
        self.files.save(self.due, self.files.checkpoint.last_timer_queue_offset)
        self.files.close()
        self.timer.start()

    def _deliver(self, message):
        result = self.results.pop(0) if self.results else PutResult(PutStatus.PUT_OK, AppendStatus.PUT_OK)
        if result.ok:
            self.delivered.append(message.body)
        return result


@pytest.fixture
def timed(tmp_path):
    with open_store(tmp_path, StoreOptions(compat=Compat.V5_5)) as store:
        found = Timed(tmp_path, store)
        found.store = store
        yield found
        found.timer.close()


def park(store, body, due, **more):
    place = {"REAL_TOPIC": "T", "REAL_QID": "0", "TIMER_OUT_MS": str(due), **more}
    result = store.put(TIMER_TOPIC, 0, body, properties.encode(place.items()))
    assert result.ok
    store.dispatch()
    return result.physical_offset


def test_a_message_that_the_store_refuses_as_it_is_read_is_delivered_by_a_later_turn(timed):
    park(timed.store, b"one", timed.due - 5000)
    park(timed.store, b"two", timed.due - 5000)
    timed.results = [PutResult(PutStatus.OS_PAGE_CACHE_BUSY)]
    timed.start()
    timed.timer.turn()
    assert (timed.delivered, timed.timer.runtime()["timerOffsetBehind"]) == ([], 2)
    timed.timer.turn()
    assert (timed.delivered, timed.timer.runtime()["timerOffsetBehind"]) == ([b"one", b"two"], 0)


def test_a_hole_in_the_timer_topic_is_skipped(timed):
    for body in (b"lost", b"lost too", b"kept"):
        park(timed.store, body, timed.due - 5000)
    get = timed.messages.get_message

    def with_hole(topic, queue_id, offset, count):
        if offset < 2:
            return SimpleNamespace(records=(), queue_offsets=(), resume_offset=2, max_offset=3)
        return get(topic, queue_id, offset, count)

    timed.messages.get_message = with_hole
    timed.start()
    timed.timer.turn()
    assert timed.delivered == [b"kept"]


def test_a_unit_without_a_valid_record_is_skipped_once_and_the_rest_of_its_slot_delivered(timed):
    kept = park(timed.store, b"kept", timed.due)
    timed.damaged[1 << 40] = bytes(100)
    timed.file(1 << 40)
    timed.file(1 << 41, TimerMagic.DEFAULT | TimerMagic.DELETE)  # a recall whose message has expired
    timed.file(kept)
    timed.start()
    timed.timer.turn()
    assert timed.delivered == [b"kept"]
    assert timed.skipped.counts["timer"] == 1


def test_a_timer_whose_last_message_is_damaged_starts_and_delivers_the_others(timed):
    kept = park(timed.store, b"kept", timed.due)
    timed.files.save(timed.due, 1)  # all of the timer topic is in the wheel
    timed.file(kept)
    timed.damaged[1 << 40] = bytes(100)
    timed.file(1 << 40)
    timed.start()
    timed.timer.turn()
    assert timed.delivered == [b"kept"]


RECORDED_CHECK_POINT = bytes.fromhex(
    "000001a207d519c0"  # last read time, aligned to a second
    "0000000000000034"  # end of the timer log: one unit of 52 bytes
    "0000000000000001"  # queue offset up to which messages are in the wheel
    "0000000000000001"  # the same of the master
    "0000000000000000000001a207d51b3c000000000000001a"  # data version
)
"""The real 5.5.0's answer to GET_TIMER_CHECK_POINT, two seconds after its first timer message."""


def test_a_slave_is_given_the_timer_s_checkpoint(tmp_path):
    with MqServer(tmp_path / "store") as server, Client(server.broker_address) as client:
        expected = timer.parse_checkpoint(RECORDED_CHECK_POINT)
        now = now_ms()
        assert client.put("Later", properties={"TIMER_DELIVER_MS": str(now + 3_600_000)}).code == 0
        until(lambda: client.call(60).body[16:24] == RECORDED_CHECK_POINT[16:24])
        answer = client.call(60)
        found = timer.parse_checkpoint(answer.body)
    assert (answer.code, answer.remark, answer.fields, len(answer.body)) == (0, None, {}, len(RECORDED_CHECK_POINT))
    varying = {"last_read_time_ms": 0, "timestamp": 0, "counter": 0}
    assert replace(found, **varying) == replace(expected, **varying)
    assert (found.last_read_time_ms % 1000, abs(found.last_read_time_ms - now) < 60_000) == (0, True)


def test_without_a_timer_there_is_no_checkpoint(tmp_path):
    with MqServer(tmp_path / "store", timerWheelEnable="false") as server, Client(server.broker_address) as client:
        answer = client.call(60)
    assert (answer.code, answer.remark) == (1, "The checkpoint is null")  # as the real 5.5.0 answers


def test_a_broker_of_4_9_does_not_know_the_request(tmp_path):
    with open_store(tmp_path / "store", StoreOptions(compat=Compat.V4_9)) as store:
        assert store.put("T", 0, b"body").ok
    with MqServer(tmp_path / "store") as server, Client(server.broker_address) as client:
        answer = client.call(60)
    assert (answer.code, answer.remark) == (3, " request type 60 not supported")


def handle(topic, *, broker="broker-a", after_ms=60_000):
    return RecallHandle(topic, broker, now_ms() + after_ms, "0A").text


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"topic": "Other"}, "topic not match"),
        ({"broker": "broker-b"}, "broker service not available"),
        ({"after_ms": -1}, "timestamp invalid"),
        ({"after_ms": 3 * 86_400_000 + 10_000}, "timestamp invalid"),
    ],
    ids=["other topic", "other broker", "over", "too late"],
)
def test_a_recall_that_cannot_meet_its_message_is_refused(client, server, topic, changed, words):
    answer = client.call(370, topic=topic, recallHandle=handle(**{"topic": topic, **changed}))
    assert (answer.code, answer.remark) == (604, f"recall failed, {words}")


def test_a_recall_for_a_topic_that_does_not_exist_is_refused(client):
    for named in ("None", "T"):
        answer = client.call(370, topic="None", recallHandle=handle(named))
        assert (answer.code, answer.remark) == (17, "recall failed, the topic[None] not exist")


def test_a_recall_that_the_store_refuses_is_answered_as_by_the_broker(client, server, topic, monkeypatch, caplog):
    async def refused(_message):
        return PutResult(PutStatus.OS_PAGE_CACHE_BUSY)

    monkeypatch.setattr(server.broker.writer, "store", refused)
    answer = client.call(370, topic=topic, recallHandle=handle(topic))
    assert (answer.code, answer.remark) == (1, "recall failed, execute error")
    assert f"recall not stored topic={topic} status=OS_PAGE_CACHE_BUSY" in caplog.text


def test_a_broker_without_a_timer_refuses_messages_for_later(tmp_path):
    with MqServer(tmp_path / "store", timerWheelEnable="false") as server, Client(server.broker_address) as client:
        refused = client.put("Later", properties={"TIMER_DELAY_MS": "1000"})
        assert (refused.code, refused.remark) == (1, "accurate timer message is not enabled, timerWheelEnable is false")
        assert client.put("Later", properties={"TIMER_DELAY_MS": "1000", "DELAY": "1"}).code == 0


def test_a_message_beyond_the_wheel_goes_round_until_its_time_is_within(tmp_path, monkeypatch):
    monkeypatch.setattr("mqtool.server.broker.delay.PERIOD_S", 0.02)
    keys = {"timerPrecisionMs": "100", "timerRollWindowSlot": "3"}
    with MqServer(tmp_path / "store", **keys) as server, Client(server.broker_address) as client:
        due = now_ms() + 900
        assert client.put("Later", b"round", properties={"TIMER_DELIVER_MS": str(due)}).code == 0
        ((facts, body),) = records(client.pull("Later", hold_ms=20_000))
    assert body == b"round"
    assert facts["stored"] >= due
    assert int(facts["properties"]["TIMER_ROLL_TIMES"]) >= 2


def rocksdb_timer(root, position, *, waiting=()):
    """A RocksDB like that of a broker with timerRocksDBEnable, which has delivered what was due at 2000 ms."""
    rocksdict = pytest.importorskip("rocksdict")
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    families = {"timer": options}
    database = rocksdict.Rdict(str(root / "rocksdbstore"), options, column_families=families)
    family = database.get_column_family("timer")
    family[b"sys_topic_scan_offset_checkpoint"] = position.to_bytes(8, "big")
    family[b"timeline_checkpoint"] = (2000).to_bytes(8, "big")
    for time_ms in (1000, *waiting):  # delivered ones are deleted later
        family[time_ms.to_bytes(8, "big") + b"KEY"] = bytes(12)
    database.close()


@pytest.fixture
def with_overdue_messages(tmp_path):
    """A store with five timer messages whose time is over; nothing shows that they were delivered."""
    with MqServer(tmp_path / "store", timerWheelEnable="false") as server, Client(server.broker_address) as client:
        client.create_topic("T", 1)
        for number in range(5):
            place = {"REAL_TOPIC": "T", "REAL_QID": "0", "TIMER_OUT_MS": "1000"}
            server.call(lambda number=number, place=place: put_parked(server, b"%d" % number, place))
        until(lambda: client.call(30, topic="rmq_sys_wheel_timer", queueId=0).fields["offset"] == "5")
    return tmp_path / "store"


def put_parked(server, body, place):
    message = OutgoingMessage("rmq_sys_wheel_timer", 0, body, properties.encode(place.items()))
    assert server.broker.writer.put(message).ok


@pytest.mark.parametrize(("position", "delivered"), [(0, 5), (3, 2), (5, 0), (99, 0)])
def test_messages_that_the_timer_in_rocksdb_has_read_are_not_delivered_again(
    with_overdue_messages, position, delivered
):
    rocksdb_timer(with_overdue_messages, position)
    with (
        MqServer(with_overdue_messages, timerRocksDBEnable="true") as server,
        Client(server.broker_address) as client,
    ):
        until(lambda: client.call(28).json["table"]["timerOffsetBehind"] == "0")
        assert client.call(30, topic="T", queueId=0).fields["offset"] == str(delivered)


def test_messages_that_wait_in_rocksdb_are_said(with_overdue_messages, caplog):
    rocksdb_timer(with_overdue_messages, 5)
    with MqServer(with_overdue_messages, timerRocksDBEnable="true"):
        assert "only a broker" not in caplog.text
    shutil.rmtree(with_overdue_messages / "rocksdbstore")
    rocksdb_timer(with_overdue_messages, 5, waiting=[2000])
    with MqServer(with_overdue_messages, timerRocksDBEnable="true"):
        assert (
            "timer messages are waiting in rocksdbstore; only a broker with timerRocksDBEnable delivers them"
            in caplog.text
        )


def test_without_the_key_a_store_whose_timer_in_rocksdb_has_read_more_is_refused(with_overdue_messages):
    rocksdb_timer(with_overdue_messages, 3)
    words = r"up to queue offset 0, the timer in RocksDB up to 3; give the broker's configuration with --config"
    with pytest.raises(UsageError, match=words), MqServer(with_overdue_messages):
        pass
    with (
        MqServer(with_overdue_messages, timerRocksDBEnable="false") as server,
        Client(server.broker_address) as client,
    ):
        until(lambda: client.call(30, topic="T", queueId=0).fields["offset"] == "5")


def test_a_timer_in_rocksdb_that_cannot_be_read_is_an_error_where_it_is_used(with_overdue_messages, caplog):
    (with_overdue_messages / "rocksdbstore").mkdir()
    (with_overdue_messages / "rocksdbstore" / "CURRENT").write_bytes(b"no manifest")
    with (
        pytest.raises(StoreError, match="cannot be opened as a RocksDB"),
        MqServer(with_overdue_messages, timerRocksDBEnable="true"),
    ):
        pass
    with MqServer(with_overdue_messages):
        assert "cannot know whether timer messages from queue offset 0 on were delivered" in caplog.text


@pytest.mark.slow
def test_messages_that_a_real_broker_would_skip_after_a_week_are_delivered(tmp_path):
    """What `explain-start` advises: 8 of 16 were delivered before, and 8 have been due since November 2026."""
    with MqServer(copy_store("orders-5.5.0", tmp_path)) as server, Client(server.broker_address) as client:
        until(
            lambda: [client.call(30, topic="Timed", queueId=queue).fields["offset"] for queue in (0, 1)] == ["8", "8"]
        )
        found = {body for queue in (0, 1) for body in bodies(client.pull("Timed", queue=queue, count=32))}
    assert len(found) == 16
