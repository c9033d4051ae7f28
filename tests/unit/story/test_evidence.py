"""Steps that no recorded life has: POP records in RocksDB, rare reports of clients, and evidence that is incomplete."""

import importlib.util
import json

import pytest
from msgspec.structs import replace

from mqtool.formats import timer, topics
from mqtool.store import open_store
from mqtool.store.groups.positions import in_flight
from mqtool.store.waiting.pending import PendingKind, pending_counts, pending_messages
from mqtool.story import StepKind, histories_of
from mqtool.story.history import MessageHistory
from mqtool.story.otlp import spans
from mqtool.story.steps import Step
from tests.support.builder import FIRST_TIME, StoreBuilder
from tests.support.stores import copy_store


def encoded(**values):
    return "".join(f"{name}\1{value}\2" for name, value in values.items()).encode()


def life(root, address="U1"):
    with open_store(root) as store:
        (found,), _ = histories_of(store, address)
    return found


def steps(found):
    return [(step.kind, step.text) for step in found.steps]


def test_reports_of_clients_are_steps_and_malformed_ones_are_passed_over(tmp_path):
    """Encoded by TraceDataEncoder of 5.5.0, but for the last two."""
    reports = [
        "Recall|1700000000500|R|G|T|U1|true",
        "SubBefore|1700000000600|R|G|REQ|U1|0|k",
        "EndTransaction|1700000000700|R|G|T|U1|a|k|h:1|0|X|COMMIT_MESSAGE|false",
        "EndTransaction|1700000000700|R|G|T|U2|a|k|h:1|0|X|COMMIT_MESSAGE|false",
        "Pub|1700000000800|R|G|T|U1",
        "SubBefore|then|R|G|REQ2|U1|0|k",
    ]
    builder = StoreBuilder()
    builder.put(topic="T", unique_key="U1")
    body = "".join(f"{one}\2" for one in reports).replace("|", "\1").encode()
    builder.put(body, topic=topics.TRACE_TOPIC, keys="U1")
    found = [step for step in life(builder.write(tmp_path / "store")).steps if step.kind is StepKind.TRACED]
    assert [(step.at, step.text) for step in found] == [
        (1_700_000_000_500, "producer group G reports that it recalled it successfully"),
        (1_700_000_000_600, "group G reports that it began to process it"),
        (1_700_000_000_700, "producer group G reports the state COMMIT_MESSAGE"),
    ]


def keep_in_rocksdb(root, *values):
    """Writes POP's records as PopConsumerRocksdbStore does; the keys do not matter to a reader."""
    import rocksdict

    options = rocksdict.Options(raw_mode=True)
    database = rocksdict.Rdict(str(root / "kvStore"), options)
    family = database.create_column_family("popState", options)
    for number, value in enumerate(values):
        family[b"%d" % number] = value
    database.close()


def record(offset, **changes):
    """The value of PopConsumerRecord.getValueBytes (5.5.0)."""
    values = {"popTime": FIRST_TIME + 500, "groupId": "G", "topicId": "T", "queueId": 0, "retryFlag": 0}
    values |= {"invisibleTime": 60_000, "offset": offset, "attemptTimes": 0, "attemptId": "a", "suspend": False}
    return json.dumps(values | changes).encode()


@pytest.mark.skipif(importlib.util.find_spec("rocksdict") is None, reason="rocksdict is not installed")
def test_what_pop_keeps_in_rocksdb_waits_and_is_popped(tmp_path):
    builder = StoreBuilder()
    for number in range(3):
        builder.put(topic="T", unique_key=f"U{number}")
    root = builder.write(tmp_path / "store")
    keep_in_rocksdb(root, record(1), record(7, queueId=4))
    found = life(root)
    assert steps(found)[1:] == [
        (StepKind.POPPED, "popped by group G, invisible for 60000 ms"),
        (StepKind.WAITS, "not acknowledged by group G"),
    ]
    assert {step.proof for step in found.steps[1:]} == {"a record of kvStore"}
    assert found.notes == ["the broker keeps pops in kvStore, which only holds those that are not acknowledged"]
    assert [kind for kind, _ in steps(life(root, "U2"))] == [StepKind.SENT]
    with open_store(root) as store:
        waiting = [
            (one.group, one.queue_id, one.queue_offset, one.unique_key, one.due, one.problem)
            for one in pending_messages(store)
        ]
        assert waiting == [
            ("G", 0, 1, "U1", FIRST_TIME + 60_500, ""),
            ("G", 4, 7, None, FIRST_TIME + 60_500, "its queue has no unit for it"),
        ]
        assert in_flight(store) == {("G", "T", 0): 1, ("G", "T", 4): 1}


@pytest.mark.skipif(importlib.util.find_spec("rocksdict") is None, reason="rocksdict is not installed")
@pytest.mark.parametrize("value", [b"no json", b"[]", b"{}", record(1).replace(b'"offset": 1', b'"offset": "1x"')])
def test_records_in_rocksdb_that_are_not_pops_make_the_rest_unknown(value, tmp_path):
    builder = StoreBuilder()
    builder.put(topic="T", unique_key="U0")
    builder.put(topic="T", unique_key="U1")
    root = builder.write(tmp_path / "store")
    keep_in_rocksdb(root, record(1), value)
    words = f"kvStore: 1 record(s) are not POP records, the first: {value[:40]!r}"
    found = life(root)
    assert (StepKind.WAITS, "not acknowledged by group G") in steps(found)
    assert found.notes == [f"pops are not provable: {words}"]
    with open_store(root) as store:
        assert [(one.kind, one.messages, one.reason) for one in pending_counts(store)] == [
            (PendingKind.POPPED, 1, ""),
            (PendingKind.POPPED, None, words),
        ]
        assert in_flight(store) is None


@pytest.mark.parametrize("op", [None, b"\xff", b"7,8"], ids=["no op queue", "an op that is no list", "another op"])
def test_a_half_message_before_the_settled_ones_that_no_op_names_has_no_provable_end(op, tmp_path):
    builder = StoreBuilder()
    values = encoded(UNIQ_KEY="U1", REAL_TOPIC="T", PGROUP="PG")
    builder.put(topic=topics.HALF_TOPIC, unique_key="U1", properties=values)
    if op is not None:
        builder.put(op, topic=topics.OP_TOPIC)
    root = builder.write(tmp_path / "store")
    assert steps(life(root)) == [
        (StepKind.HALF, "half message for T from producer group PG"),
        (StepKind.WAITS, "open: producer group PG has neither committed nor rolled back"),
    ]
    (root / "config").mkdir()
    settled = {"offsetTable": {f"{topics.HALF_TOPIC}@CID_RMQ_SYS_TRANS": {"0": 1}}}
    (root / "config" / "consumerOffset.json").write_text(json.dumps(settled))
    last = life(root).steps[-1]
    assert (last.kind, last.text) == (StepKind.UNKNOWN, "not provable: the end of the transaction")
    assert last.proof == "half messages before 1 are settled, but no op message names it"


def test_a_message_without_an_id_has_only_the_record_that_was_named(tmp_path):
    builder = StoreBuilder()
    builder.put(topic="T", keys="k")
    found = life(builder.write(tmp_path / "store"), "k")
    assert [kind for kind, _ in steps(found)] == [StepKind.SENT]
    assert found.notes == ["the message has no UNIQ_KEY, by which its other records could be found"]


def test_of_a_retry_without_the_record_before_it_the_beginning_is_not_provable(tmp_path):
    builder = StoreBuilder()
    values = encoded(UNIQ_KEY="U1", RETRY_TOPIC="T", ORIGIN_MESSAGE_ID="0A000007" + "0" * 24)
    builder.put(topic="%RETRY%G", unique_key="U1", properties=values, reconsume_times=1)
    found = life(builder.write(tmp_path / "store"))
    assert (found.topic, steps(found)) == ("T", [(StepKind.RETRY, "retry 1 of group G")])
    assert found.notes == ["an earlier record of the message is not in the store: what happened before is not provable"]


def test_a_timer_message_that_was_put_off_has_its_roll(tmp_path):
    builder = StoreBuilder()
    values = encoded(UNIQ_KEY="U1", REAL_TOPIC="T", REAL_QID="0", TIMER_OUT_MS=FIRST_TIME + 9_000)
    builder.put(topic=topics.TIMER_TOPIC, unique_key="U1", properties=values)
    rolled = values + encoded(TIMER_ROLL_TIMES=1)
    builder.put(topic=topics.TIMER_TOPIC, unique_key="U1", properties=rolled)
    assert steps(life(builder.write(tmp_path / "store")))[:2] == [
        (StepKind.TIMED, "parked in the timer for T"),
        (StepKind.ROLLED, "parked in the timer again, roll 1, for T"),
    ]


def test_what_became_of_a_pop_is_not_provable_after_the_timer_has_passed_it(tmp_path):
    root = copy_store("lives-5.5.0", tmp_path)
    last = life(root, "pophang-0").steps[-1]
    assert (last.kind, last.text) == (StepKind.WAITS, "not acknowledged by group LivesHanging")
    path = root / "config" / "timercheck"
    checkpoint = timer.parse_checkpoint(path.read_bytes())
    path.write_bytes(timer.build_checkpoint(replace(checkpoint, last_read_time_ms=last.due + 1)))
    last = life(root, "pophang-0").steps[-1]
    assert (last.kind, last.text) == (StepKind.UNKNOWN, "not provable: what group LivesHanging did with it")


def test_check_points_that_were_not_read_are_said(tmp_path, monkeypatch):
    monkeypatch.setattr("mqtool.story.steps.MAX_POINTS", 0)
    found = life(copy_store("lives-5.5.0", tmp_path), "pophang-0")
    assert StepKind.POPPED not in {step.kind for step in found.steps}
    assert found.notes[0].startswith("only the first 0 check points of POP after physical offset ")


def test_more_messages_than_are_told_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr("mqtool.story.history.MAX_HISTORIES", 2)
    builder = StoreBuilder()
    for number in range(5):
        builder.put(keys="same", unique_key=f"U{number}")
    with open_store(builder.write(tmp_path / "store")) as store:
        found, notes = histories_of(store, "same")
    assert [one.unique_key for one in found] == ["U0", "U1"]
    assert notes == ["3 more messages have this key: name one by its id"]


def test_a_half_message_that_names_no_group_is_of_an_unknown_one(tmp_path):
    builder = StoreBuilder()
    builder.put(topic=topics.HALF_TOPIC, unique_key="U1")
    assert steps(life(builder.write(tmp_path / "store"))) == [
        (StepKind.HALF, "half message for an unknown topic from an unknown producer group"),
        (StepKind.WAITS, "open: an unknown producer group has neither committed nor rolled back"),
    ]


def test_records_of_the_broker_s_own_topics_are_no_steps_of_the_message_that_they_name(tmp_path):
    builder = StoreBuilder()
    builder.put(topic="T", unique_key="U1")
    for topic in (topics.OP_TOPIC, f"{topics.REVIVE_TOPIC_PREFIX}DefaultCluster"):
        builder.put(b"no record of POP", topic=topic, unique_key="U1")
    assert steps(life(builder.write(tmp_path / "store"))) == [(StepKind.SENT, "sent to T")]


@pytest.mark.parametrize("due", [None, "soon"])
def test_a_timer_message_without_a_time_waits_for_an_unknown_one(due, tmp_path):
    builder = StoreBuilder()
    values = {"UNIQ_KEY": "U1", "REAL_TOPIC": "T"} | ({} if due is None else {"TIMER_DELIVER_MS": due})
    builder.put(topic=topics.TIMER_TOPIC, unique_key="U1", properties=encoded(**values))
    found = life(builder.write(tmp_path / "store"))
    assert [(step.kind, step.due) for step in found.steps] == [(StepKind.TIMED, None), (StepKind.WAITS, None)]


def test_a_half_message_whose_state_is_in_rocksdb_is_one_and_its_end_is_not_provable(tmp_path):
    builder = StoreBuilder()
    values = encoded(UNIQ_KEY="U1", REAL_TOPIC="T", PGROUP="P")
    builder.put(topic=topics.ROCKSDB_HALF_TOPIC, properties=values)
    found = life(builder.write(tmp_path / "store")).steps
    assert [(step.kind, step.text) for step in found] == [
        (StepKind.HALF, "half message for T from producer group P"),
        (StepKind.UNKNOWN, "not provable: the end of the transaction"),
    ]
    assert "settled in RocksDB" in found[1].proof


@pytest.mark.parametrize("topic", ["SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", topics.ROCKSDB_HALF_TOPIC])
def test_no_group_passes_messages_of_the_broker(topic, tmp_path):
    builder = StoreBuilder()
    builder.put(topic=topic, properties=encoded(UNIQ_KEY="U1", REAL_TOPIC="T"))
    root = builder.write(tmp_path / "store")
    (root / "config").mkdir(exist_ok=True)
    table = {"offsetTable": {f"{topic}@G": {0: 1}}}
    (root / "config" / "consumerOffset.json").write_text(json.dumps(table))
    assert StepKind.PASSED not in {step.kind for step in life(root).steps}


def test_an_op_message_whose_file_is_missing_leaves_the_end_unknown(tmp_path):
    """The op that ends the half message may have been in it."""
    builder = StoreBuilder(queue_file_units=2)
    builder.put(
        topic=topics.HALF_TOPIC, unique_key="U1", properties=encoded(UNIQ_KEY="U1", REAL_TOPIC="T", PGROUP="PG")
    )
    for number in range(6):
        builder.put(b"%d," % (0 if number == 3 else 90 + number), topic=topics.OP_TOPIC)
    root = builder.write(tmp_path / "store")
    assert steps(life(root))[-1][0] is not StepKind.UNKNOWN
    (root / "consumequeue" / topics.OP_TOPIC / "0" / f"{40:020}").unlink()
    last = life(root).steps[-1]
    assert (last.kind, last.text) == (StepKind.UNKNOWN, "not provable: the end of the transaction")
    assert last.proof == f"queue {topics.OP_TOPIC}/0 has no file for the op message at queue offset 2"


def test_steps_without_a_time_are_no_spans():
    step = Step(StepKind.SENT, "sent", "record at 0")
    timed = Step(StepKind.SENT, "sent", "record at 0", at=FIRST_TIME)
    builder = StoreBuilder()
    builder.put(unique_key="U1")
    (resource,) = spans([MessageHistory("U1", (), None, "T", [], [step])])["resourceSpans"]
    assert resource["scopeSpans"][0]["spans"] == []
    (resource,) = spans([MessageHistory("U1", (), None, "T", [], [step, timed])])["resourceSpans"]
    assert [one["name"] for one in resource["scopeSpans"][0]["spans"]] == ["message T", "send T"]
