"""Messages that a background service cannot use: each is skipped, counted and shown, and the others are served."""

import json
import time

import pytest

import mqtool
from mqtool.engine import StoreOptions, open_store
from mqtool.engine.write.messages import OutgoingMessage
from mqtool.errors import FormatError
from mqtool.formats import properties, service_records
from mqtool.formats.topics import HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from mqtool.server.admin import port
from mqtool.server.admin.content import take
from mqtool.server.testing import MqServer
from mqtool.verify.findings import Severity
from mqtool.verify.store import verify
from tests.support.remoting import bodies
from tests.unit.server.broker.conftest import until
from tests.unit.server.broker.test_transactions import COMMIT, end, half

REVIVE_TOPIC = "rmq_sys_REVIVE_LOG_DefaultCluster"
HUGE = "9" * 5000
POINT = {"bn": "broker-a", "c": "G", "it": 1, "n": 1, "pt": 1, "q": 0, "so": 0, "t": "T"}


@pytest.fixture(scope="module")
def server():
    settings = {"transactionCheckInterval": "100", "transactionTimeOut": "50", "messageDelayLevel": "1s 2s"}
    with MqServer(flushConsumerOffsetInterval="50", **settings) as found:
        yield found


def poison(server: MqServer, topic: str, found: dict[str, str], body: bytes = b"x", queue_id: int = 0) -> None:
    encoded = properties.encode(found.items())
    broker = server.broker
    host = broker.store_host
    message = OutgoingMessage(topic, queue_id, body, encoded, born_host=host, store_host=host)
    assert server.call(lambda: broker.writer.put_as_it_is(message)).ok


def skipped(server: MqServer, service: str) -> int:
    return server.call(lambda: server.broker.skipped.counts[service])


DESTINATIONS = [
    {"REAL_QID": "abc", "REAL_TOPIC": "T"},
    {"REAL_QID": "²", "REAL_TOPIC": "T"},
    {"REAL_QID": HUGE, "REAL_TOPIC": "T"},
    {"REAL_QID": "-1", "REAL_TOPIC": "T"},
    {"REAL_QID": str(1 << 30), "REAL_TOPIC": "T"},
    {"REAL_QID": "0"},
    {"REAL_QID": "0", "REAL_TOPIC": "../../evil"},
    {"REAL_QID": "0", "REAL_TOPIC": "t" * 300},
]


@pytest.mark.slow
def test_delays_come_after_messages_that_cannot_be_delivered(server, client, topic):
    before = skipped(server, "delay")
    bad = [*DESTINATIONS, {"REAL_QID": "0", "REAL_TOPIC": HALF_TOPIC}]
    for found in bad:
        poison(server, SCHEDULE_TOPIC, {**found, "DELAY": "1"})
    client.put(topic, b"delayed", properties={"DELAY": "1"})
    assert bodies(client.pull(topic, hold_ms=20_000)) == [b"delayed"]
    assert skipped(server, "delay") - before == len(bad)


@pytest.mark.slow
def test_timers_come_after_messages_that_cannot_be_filed_or_delivered(server, client, topic):
    before = skipped(server, "timer")
    past = str(time.time_ns() // 1_000_000 - 5)
    soon = str(time.time_ns() // 1_000_000 + 500)
    bad = [{**found, "TIMER_OUT_MS": due} for found in DESTINATIONS for due in (past, soon)]
    bad += [{"REAL_TOPIC": topic, "TIMER_OUT_MS": due} for due in ("abc", "²", HUGE, "")]
    for found in bad:
        poison(server, TIMER_TOPIC, found)
    client.put(topic, b"timed", properties={"TIMER_DELAY_MS": "1000"})
    assert bodies(client.pull(topic, hold_ms=20_000)) == [b"timed"]
    assert skipped(server, "timer") - before == len(bad)


def test_producers_are_asked_and_halves_end_after_messages_that_are_no_halves(server, client, topic):
    before = skipped(server, "transaction")
    for found in DESTINATIONS:
        poison(server, HALF_TOPIC, {**found, "PGROUP": "PPoison"})
    for times in ("abc", "²", HUGE):
        poison(server, HALF_TOPIC, {"REAL_QID": "0", "REAL_TOPIC": topic, "TRANSACTION_CHECK_TIMES": times})
    ops = [b"abc", HUGE.encode(), b"-5,", b"1,\xff,2", str(1 << 63).encode()]
    for body in ops:
        poison(server, OP_TOPIC, {"TAGS": "d"}, body)
    poison(server, OP_TOPIC, {"TAGS": "d"}, b",".join(b"%d" % (1 << 60 | number) for number in range(1000)))
    client.heartbeat("poison@1", producers=("PPoisonAsked",))
    half(client, topic, b"asked", "PPoisonAsked")
    asked = client.request(39)
    where = int(asked.fields["commitLogOffset"]), int(asked.fields["tranStateTableOffset"])
    assert client.answer(end(client, where, COMMIT, "PPoisonAsked")).code == 0
    until(lambda: client.pull(topic).code == 0)
    assert b"asked" in bodies(client.pull(topic))
    assert skipped(server, "transaction") - before == len(DESTINATIONS) + len(ops)
    assert server.call(lambda: len(server._server.service.transactions._done)) < 100


BODIES = [
    b"",
    b"[]",
    b"no json",
    b"[" * 100_000,
    json.dumps({**POINT, "n": 10**12}).encode(),
    json.dumps({**POINT, "d": [0] * 1_000}).encode(),
    json.dumps({**POINT, "q": 1 << 40}).encode(),
    json.dumps({**POINT, "q": -1}).encode(),
    json.dumps({**POINT, "so": 1 << 70}).encode(),
    json.dumps({**POINT, "pt": (1 << 63) - 1}).encode(),
    json.dumps({**POINT, "pt": None}).encode(),
    b'{"so": ' + HUGE.encode() + b"}",
]


@pytest.mark.slow
def test_popped_messages_come_again_after_records_that_are_no_check_points(server, client, topic):
    before = skipped(server, "pop revive")
    for queue_id in range(8):
        for body in BODIES:
            poison(server, REVIVE_TOPIC, {"TAGS": "ck"}, body, queue_id)
        poison(server, REVIVE_TOPIC, {"TAGS": "bAck"}, b'{"aol": 7}', queue_id)
    client.put(topic, b"popped")
    fields = {"consumerGroup": "GPoison", "topic": topic, "queueId": 0, "maxMsgNums": 1, "invisibleTime": 500}
    client.call(200, json.dumps({"groupName": "GPoison"}).encode())
    pop = {
        **fields,
        "pollTime": 5_000,
        "bornTime": int(time.time() * 1000),
        "initMode": 0,
        "exp": "*",
        "expType": "TAG",
    }
    assert bodies(client.call(200050, **pop)) == [b"popped"]
    until(lambda: client.pull(f"%RETRY%GPoison_{topic}").code == 0)
    assert skipped(server, "pop revive") - before == 8 * (len(BODIES) + 1)


def test_verify_names_messages_that_a_service_cannot_use_and_where_they_are(tmp_path):
    host = b"\x7f\0\0\1\0\0\0\1"
    with open_store(tmp_path / "store", StoreOptions(commit_log_file_size=1 << 20)) as store:
        for topic, found, body in [
            (SCHEDULE_TOPIC, {"REAL_TOPIC": "T", "REAL_QID": "abc"}, b"x"),
            (SCHEDULE_TOPIC, {"REAL_TOPIC": "T", "REAL_QID": "0"}, b"good"),
            (TIMER_TOPIC, {"REAL_TOPIC": "T", "REAL_QID": "0"}, b"x"),
            (HALF_TOPIC, {"REAL_QID": "0"}, b"x"),
            (OP_TOPIC, {"TAGS": "d"}, b"0,abc"),
            (REVIVE_TOPIC, {"TAGS": "ck"}, BODIES[4]),
            (REVIVE_TOPIC, {"TAGS": "ck"}, json.dumps({**POINT, "pt": (1 << 63) - 1}).encode()),
            (REVIVE_TOPIC, {"TAGS": "ck"}, json.dumps({**POINT, "pt": time.time_ns() // 1_000_000}).encode()),
        ]:
            encoded = properties.encode(found.items())
            assert store.put(topic, 0, body, encoded, born_host=host, store_host=host).ok
    with mqtool.open(tmp_path / "store") as store:
        found = verify(store)
    unusable = [one for one in found.findings if one.code == "log-unusable-message"]
    named = {one.topic: one for one in unusable}
    assert len(unusable) == 6
    assert set(named) == {SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, OP_TOPIC, REVIVE_TOPIC}
    assert {one.severity for one in named.values()} == {Severity.WARNING}
    assert (named[SCHEDULE_TOPIC].queue_id, named[SCHEDULE_TOPIC].physical_offset) == (0, 0)
    assert "REAL_QID" in named[SCHEDULE_TOPIC].evidence


@pytest.mark.slow
def test_skipped_messages_are_in_metrics_and_on_the_page(tmp_path):
    with MqServer(tmp_path / "store", messageDelayLevel="1s") as server:
        poison(server, SCHEDULE_TOPIC, {"REAL_TOPIC": "T", "REAL_QID": "abc"})
        until(lambda: skipped(server, "delay"))
        text = server.call(lambda: port.metrics_of(server.broker))
        assert [line for line in text.splitlines() if 'service="delay"' in line and line.endswith(" 1")]
        (one,) = server.call(lambda: take(server.broker)).skipped
        assert (one.topic, one.queue_id, one.queue_offset) == (SCHEDULE_TOPIC, 0, 0)
        assert "REAL_QID" in one.reason


def test_a_message_that_its_sender_puts_into_the_topic_of_the_timer_is_stored_and_answered_so(server, client):
    """It was answered with an error because no recall handle can be made for such a time."""
    before = skipped(server, "timer")
    for due in ("abc", HUGE, ""):
        answer = client.put(TIMER_TOPIC, b"x", properties={"TIMER_OUT_MS": due, "REAL_TOPIC": "T", "REAL_QID": "x"})
        assert (answer.code, answer.remark) == (0, None)
        assert "recallHandle" not in answer.fields
    until(lambda: skipped(server, "timer") == before + 3)


def test_what_is_wrong_with_a_revive_record_is_reported_in_words():
    reasons = {}
    for body in (b"no json", b"\xff", b"[" * 100_000, b"{}", b"[]", b'{"so": ' + HUGE.encode() + b"}"):
        with pytest.raises(FormatError) as error:
            service_records.revive_record("ck", body)
        reasons[bytes(body[:7])] = str(error.value).partition("found ")[2]
    assert list(reasons.values()) == [
        "no JSON",
        "no JSON",
        "JSON that is nested too deeply",
        "no field 'so'",
        "JSON of another shape",
        "a number of too many digits",
    ]


@pytest.mark.slow
def test_check_points_without_a_message_or_a_topic_do_not_keep_others_from_coming_again(server, client, topic):
    """As a broker leaves them that was stopped for long: topics and messages may be deleted meanwhile."""
    assert client.put(topic, b"again").code == 0
    until(lambda: client.pull(topic).code == 0)
    server.create_group("GOnce")
    now = time.time_ns() // 1_000_000 - 5000
    points = [("GOnce", "Deleted", 0), ("GOnce", topic, 77), ("GOnce", topic, 0)]
    for number, (group, where, start) in enumerate(points):
        point = POINT | {"c": group, "t": where, "so": start, "pt": now + number, "d": [0]}
        poison(server, REVIVE_TOPIC, {"TAGS": "ck"}, json.dumps(point).encode())
    retries = f"%RETRY%GOnce_{topic}"
    until(lambda: client.call(351, topic=retries).code == 0)
    assert bodies(client.pull(retries, hold_ms=20_000)) == [b"again"]
    offset = client.call(14, consumerGroup="GOnce", topic=retries, queueId=0, setZeroIfNotFound="false")
    assert (offset.code, offset.fields["offset"]) == (0, "0")
    assert client.call(351, topic="%RETRY%GOnce_Deleted").code == 17
