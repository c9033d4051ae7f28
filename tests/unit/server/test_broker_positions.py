"""Positions set on a broker: refusals, an interrupted run, a broker that ignores a position; and the plan's file."""

import asyncio
import json
import threading
from contextlib import contextmanager

import pytest
from msgspec.structs import replace

from mqtool.errors import RefusedError, RemoteProtocolError
from mqtool.protocol import Command
from mqtool.server.net.connections import Listener
from mqtool.server.offsets import BrokerPlan, BrokerPositions, apply_moves, check_broker
from mqtool.store.groups.offset_moves import Move
from tests.support.engine import open_small

MOVES = (Move("g", "T", 0, 8, 5), Move("g", "T", 1, 9, 5), Move("g", "T", 2, None, 4))
PLAN = BrokerPlan("127.0.0.1:1", "broker-a", "2026-11-21T00:00:00+00:00", MOVES)
FIRST = {0: 8, 1: 9}


class Broker:
    """A broker with one topic of three queues; the connection breaks after some requests, or a position is ignored."""

    address, name = "127.0.0.1:1", "broker-a"

    def __init__(self, answers=1000, *, ignores=(), members=(), resets_by_itself=False, role="ASYNC_MASTER"):
        self.table = dict(FIRST)
        self.settings = {"brokerRole": role}
        self.resets_by_itself = resets_by_itself
        self._answers, self._ignores, self._members = answers, ignores, list(members)
        self.told, self.outcome = [], Command(0)

    def committed(self):
        return {"g": {"T": {queue: offset for queue, offset in self.table.items() if offset >= 0}}}

    def members(self, group):
        return self._members

    def topics(self):
        return {"T": (0, 1, 2)}

    def call_ok(self, code, **fields):
        if not self._answers:
            raise ConnectionError("the broker is down")
        self._answers -= 1
        if fields["queueId"] not in self._ignores:
            self.table[fields["queueId"]] = fields["offset"] if "offset" in fields else fields["commitOffset"]

    def call(self, code, **fields):
        self.told.append(fields)
        return self.outcome


def test_every_position_is_set_and_the_undo_plan_sets_them_back():
    broker, undo = Broker(), []
    done = apply_moves(broker, PLAN, undo.append)
    assert (done.moved, done.already, broker.table) == (3, 0, {0: 5, 1: 5, 2: 4})
    assert apply_moves(broker, undo[0], lambda _: None).moved == 3
    assert broker.committed() == {"g": {"T": FIRST}}


@pytest.mark.parametrize("answers", [0, 1, 2])
def test_an_interrupted_run_is_finished_or_undone(answers):
    for finish in (True, False):
        broker, undo = Broker(answers), []
        with pytest.raises(ConnectionError):
            apply_moves(broker, PLAN, undo.append)
        assert undo == [PLAN.undo()], "the undo file is there before the first position is set"
        broker._answers = 1000
        done = apply_moves(broker, PLAN if finish else undo[0], lambda _: None)
        assert done.already == (answers if finish else 3 - answers)
        assert broker.committed()["g"]["T"] == ({0: 5, 1: 5, 2: 4} if finish else FIRST)


@pytest.mark.parametrize(
    ("broker", "plan", "gate"),
    [
        (Broker(members=["c"]), PLAN, "online"),
        (Broker(members=["c"]), replace(PLAN, online=True), "online"),
        (Broker(members=["c"]), replace(PLAN, online=True, time=0), "online"),  # no position in queue 2
        (Broker(), replace(PLAN, online=True, time=0), "offline"),
        (Broker(role="SLAVE"), PLAN, "slave"),
        (Broker(), replace(PLAN, name="broker-b"), "broker"),
    ],
)
def test_what_the_broker_would_ignore_is_refused_before(broker, plan, gate):
    with pytest.raises(RefusedError) as refused:
        check_broker(broker, plan)
    assert refused.value.gate == gate
    with pytest.raises(RefusedError):
        apply_moves(broker, plan, lambda _: pytest.fail("an undo file was written"))
    assert broker.table == FIRST


def test_running_consumers_are_moved_where_the_broker_resets_by_itself():
    broker = Broker(members=["c"], resets_by_itself=True)
    broker.table[0] = 9  # they go on meanwhile
    assert apply_moves(broker, replace(PLAN, online=True), lambda _: None).moved == 3
    assert broker.table == {0: 5, 1: 5, 2: 4}


def test_running_consumers_of_4_9_are_told_a_time_and_a_refusal_has_the_broker_s_words():
    broker, undo = Broker(members=["c"]), []
    broker.table[2] = 7
    moves = (*MOVES[:2], Move("g", "T", 2, 7, 4))
    plan = replace(PLAN, moves=moves, online=True, time=77)
    done = apply_moves(broker, plan, undo.append)
    assert (done.moved, done.notified, undo) == (3, ("g",), [plan.undo()])
    assert broker.told == [{"topic": "T", "group": "g", "timestamp": 77, "isForce": True}]
    for code, words in ((206, "CONSUMER_NOT_ONLINE: no consumer"), (9999, "code 9999: no consumer")):
        broker.outcome = Command(code, remark="no\n consumer")
        with pytest.raises(RefusedError, match=f"ignored: group g, T: {words}"):
            apply_moves(broker, plan, undo.append)


def test_a_position_that_somebody_moved_or_the_broker_ignores_is_refused():
    broker = Broker()
    broker.table[1] = 7
    with pytest.raises(RefusedError, match="T/1: expected position 9, found 7"):
        apply_moves(broker, PLAN, lambda _: None)
    assert broker.table == {0: 8, 1: 7}
    with pytest.raises(RefusedError, match="keeps position 9 instead of 5"):
        apply_moves(Broker(ignores=(1,)), PLAN, lambda _: None)


def test_the_file_of_a_plan_cannot_be_edited(tmp_path):
    text = PLAN.to_json()
    assert BrokerPlan.from_json(text.encode(), tmp_path) == PLAN
    document = json.loads(text)
    document["moves"][0]["after"] = 6
    with pytest.raises(RefusedError, match="plan-edited"):
        BrokerPlan.from_json(json.dumps(document).encode(), tmp_path)
    document["moves"][0]["after"] = "6"
    with pytest.raises(RefusedError, match="plan-unreadable"):
        BrokerPlan.from_json(json.dumps(document).encode(), tmp_path)
    assert BrokerPlan.from_json(b'{"schema": "mqtool.plan"}', tmp_path) is None


# -- answers of a broker that cannot be used


@contextmanager
def answering(code=0, body=b"", remark=None, **fields):
    """A client of a broker that gives every request the same answer."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def answer(command, peer):
        return command.reply(code, remark, fields, body) if code is not None else asyncio.Future()

    listener = Listener("127.0.0.1", 0, {}, answer)
    asyncio.run_coroutine_threadsafe(listener.start(), loop).result()
    try:
        with BrokerPositions(listener.address) as broker:
            yield broker
    finally:
        asyncio.run_coroutine_threadsafe(listener.stop(0), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.mark.parametrize(
    ("answer", "ask", "words"),
    [
        ({"code": 16, "remark": "no"}, lambda broker: broker.name, "GET_BROKER_CONFIG: NO_PERMISSION: no"),
        ({"body": b"a=\\uZZZZ"}, lambda broker: broker.name, "after .*u, found 'ZZZZ'"),
        ({"body": b"[]"}, lambda broker: broker.release, "expected a JSON object, found a list"),
        ({"body": b"{"}, lambda broker: broker.topics(), "127.0.0.1"),
        ({"body": b'{"offsetTable":7}'}, lambda broker: broker.committed(), "127.0.0.1"),
        ({"offset": "many"}, lambda broker: broker.bounds("T", 0), "expected offset in SUCCESS"),
        ({}, lambda broker: broker.at_time("T", 0, 1), "expected offset in SUCCESS"),
        ({"body": b"no record"}, lambda broker: broker.message("T", 0, 0), "answer to a pull: "),
        ({"code": 16, "remark": "no"}, lambda broker: broker.message("T", 0, 0), "expected nextBeginOffset in NO_PERM"),
    ],
    ids=["refusal", "settings", "runtime", "topics", "offsets", "no number", "no offset", "no record", "refused pull"],
)
def test_an_answer_that_cannot_be_used_is_an_error_with_the_broker_s_address(answer, ask, words):
    with answering(**answer) as broker, pytest.raises(RemoteProtocolError, match=words):
        ask(broker)


def test_a_broker_that_does_not_answer_in_time_is_an_error(monkeypatch):
    monkeypatch.setattr("mqtool.server.offsets.ANSWER_SECONDS", 0.05)
    with answering(None) as broker, pytest.raises(ConnectionError, match=r"no answer within 0\.05 s"):
        broker.groups()


def test_messages_that_were_not_asked_for_are_left_out_and_a_queue_that_does_not_go_on_ends(in_memory):
    with open_small(in_memory / "store") as store:
        found = [store.put("T", 0, b"%d" % number) for number in range(3)]
        body = b"".join(map(bytes, (store.message_at(one.physical_offset) for one in found)))
    with answering(body=body, nextBeginOffset="1") as broker:
        assert [one.queue_offset for one in broker.messages("T", 0, 1, 2)] == [1]
        assert [one.queue_offset for one in broker.messages("T", 0, 1, 9)] == [1, 2]
    with answering(body=body, nextBeginOffset="9") as broker:
        assert broker.message("T", 0, 5) is None


def test_a_client_that_asks_nothing_opens_no_connection():
    with BrokerPositions("127.0.0.1:1") as positions:  # where nobody listens
        assert positions is not None
