"""The lives of 207 messages that real clients gave them on a real 5.5.0 broker, against what `tell` finds in the store.

What is expected of each life comes from its script (tests/interop/java/only5/Lives.java) and from what the clients saw.
"""

from collections import Counter, defaultdict
from itertools import pairwise

import pytest

import mqtool
from mqtool.formats.message_id import parse_offset_id
from mqtool.story import StepKind, tell
from tests.support.stores import FIXTURES, answers, copy_store

GROUP, OTHER = "LivesGroup", "LivesOther"
STORED = (StepKind.SENT, StepKind.HALF, StepKind.DELAYED, StepKind.TIMED)

SCRIPTS = {
    "plain": {"sent": 1, "passed": 2},
    "unread": {"sent": 1, "waits": 2},
    "delay": {"delayed": 1, "delivered": 1, "passed": 1},
    "delaywait": {"delayed": 1, "waits": 1},
    "timer": {"timed": 1, "delivered": 1, "passed": 1},
    "timerwait": {"timed": 1, "waits": 1},
    "recall": {"timed": 1, "recalled": 1},
    "txcommit": {"half": 1, "committed": 1, "passed": 1},
    "txrollback": {"half": 1, "rolled-back": 1},
    "txchecked": {"half": 1, "checked": 1, "committed": 1, "passed": 1},
    "txgivenup": {"half": 1, "checked": 2, "given-up": 1},
    "txopen": {"half": 1, "checked": 2, "given-up": 1},
    "retry1": {"sent": 1, "sent-back": 1, "retry": 1, "passed": 2},
    "retry2": {"sent": 1, "sent-back": 2, "retry": 2, "passed": 3},
    "dead": {"sent": 1, "sent-back": 2, "retry": 2, "dead": 1, "passed": 3},
    "pop": {"sent": 1, "popped": 1, "acknowledged": 1, "passed": 1},
    "popretry": {"sent": 1, "popped": 2, "retry": 1, "acknowledged": 1, "passed": 2},
    "pophang": {"sent": 1, "popped": 1, "waits": 1, "passed": 1},
}
"""Steps of each kind of life, but for the clients' own reports."""


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with mqtool.open(copy_store("lives-5.5.0", tmp_path_factory.mktemp("lives"))) as opened:
        yield opened


@pytest.fixture(scope="module")
def events():
    found = defaultdict(list)
    for row in answers("lives-5.5.0", "lives"):
        found[row["life"]].append(row)
    return found


@pytest.fixture(scope="module")
def lives(store, events):
    found = {}
    for name in events:
        told, notes = tell(store, name)
        assert len(told) == 1
        assert notes == told[0].notes == []
        found[name] = told[0]
    return found


def test_every_life_has_the_steps_of_its_script_and_no_other(lives):
    assert len(lives) >= 200
    wrong = {}
    for name, life in lives.items():
        told = Counter(step.kind.value for step in life.steps if step.kind is not StepKind.TRACED)
        if told != Counter(SCRIPTS[name.partition("-")[0]]):
            wrong[name] = told
    assert wrong == {}


def test_what_clients_saw_is_at_the_records_that_they_saw(lives, events):
    for name, rows in events.items():
        steps = lives[name].steps
        for row in rows:
            assert any(fits(row, step) for step in steps), (row, steps)


def fits(row, step):
    if row["event"] == "sent" and row["offsetMsgId"] == "null":  # of a half message
        return step.kind is StepKind.HALF and step.queue_offset == row["queueOffset"]
    if row["event"] == "sent":
        return step.kind in STORED and step.physical_offset == parse_offset_id(row["offsetMsgId"]).physical_offset
    if row["event"] == "recalled":
        return step.kind is StepKind.RECALLED
    if row["event"] == "checked":
        return step.kind is StepKind.CHECKED and step.physical_offset == row["offset"]
    is_pop = row["group"] not in (GROUP, OTHER)
    kind = StepKind.POPPED if is_pop else StepKind.PASSED
    seen = (step.group, step.physical_offset, step.queue_offset, step.tries)
    return step.kind is kind and seen == (row["group"], row["offset"], row["queueOffset"], row["times"])


def test_no_group_got_a_message_that_no_client_of_it_saw(lives, events):
    for name, life in lives.items():
        seen = {(row["group"], row["offset"]) for row in events[name] if row["event"] == "delivered"}
        told = {(step.group, step.physical_offset) for step in life.steps if step.kind is StepKind.PASSED}
        assert told == seen


def test_reports_of_clients_agree_with_what_they_said(lives, events):
    for name, life in lives.items():
        got = [row for row in events[name] if row["event"] == "delivered" and row["group"] == GROUP]
        told = [step for step in life.steps if step.kind is StepKind.TRACED and step.group == GROUP]
        assert sorted((step.tries, "without" not in step.text) for step in told) == sorted(
            (row["times"], row["done"]) for row in got
        )


def test_steps_are_in_the_order_of_time(lives):
    for life in lives.values():
        records = [step.at for step in life.steps if step.at is not None and step.kind is not StepKind.TRACED]
        assert all(later >= earlier - 100 for earlier, later in pairwise(records))


@pytest.mark.parametrize("kind", ["sent", "delivered"])
def test_an_address_of_any_kind_leads_to_the_same_life(store, lives, events, kind):
    row = next(row for row in events["retry2-1"] if row["event"] == kind)
    expected = lives["retry2-1"].steps
    for address in (row["msgId"], row["offsetMsgId"], str(parse_offset_id(row["offsetMsgId"]).physical_offset)):
        told, _ = tell(store, address)
        assert [one.steps for one in told] == [expected], address


def test_what_is_in_no_record_is_told_as_nothing(store):
    assert tell(store, "no such key") == ([], [])


def test_the_log_is_not_scanned(store, lives, monkeypatch):
    read = []
    original = type(store.commit_log).record_at
    monkeypatch.setattr(
        type(store.commit_log), "record_at", lambda log, offset: read.append(offset) or original(log, offset)
    )
    monkeypatch.setattr(type(store), "messages", lambda *_, **__: pytest.fail("the log was scanned"))
    told, _ = tell(store, lives["dead-0"].unique_key)
    assert len(told) == 1
    assert len(read) < 120


def kinds(store, address):
    (life,), notes = tell(store, address)
    assert notes == []
    return [step.kind.value for step in life.steps if step.kind is not StepKind.PASSED]


def test_transactions_of_4_9_are_open_committed_or_rolled_back():
    with mqtool.open(FIXTURES / "metadata-4.9.7" / "store") as store:
        halves = store.messages(topics=["RMQ_SYS_TRANS_HALF_TOPIC"])
        told = [kinds(store, one.unique_key) for one in halves]
    committed = ["half", "committed", "waits", "waits", "waits"]  # three groups have not got it
    assert told == [["half", "waits"], ["half", "waits"], committed, committed, ["half", "rolled-back"]]


def test_a_dead_letter_of_4_9_has_its_tries():
    with mqtool.open(FIXTURES / "orders-4.9.7" / "store") as store:
        dead = next(store.messages(topics=["%DLQ%*"]))
        assert kinds(store, dead.unique_key) == ["sent", "sent-back", "retry", "sent-back", "retry", "dead"]
