"""Lives that real clients gave to messages on real brokers, 207 each on 4.9.7 and 5.5.0, against what `histories_of` finds.

What is expected of each life comes from its script (tests/interop/java/Lives.java) and from what the clients saw.
"""

from itertools import pairwise

import pytest

import mqtool
from mqtool.formats.hosts import parse_offset_id
from mqtool.store import find
from mqtool.story import StepKind, histories_of
from tests.support.lives import GROUP, histories_by_key, judge
from tests.support.stores import FIXTURES, answers, copy_store


@pytest.fixture(scope="module", params=["lives-4.9.7", "lives-5.5.0"])
def histories(request, tmp_path_factory):
    """Lives and events of a store."""
    with mqtool.open(copy_store(request.param, tmp_path_factory.mktemp("lives"))) as opened:
        yield opened, *histories_by_key(opened, answers(request.param, "lives"))


@pytest.fixture(scope="module")
def store(histories):
    return histories[0]


@pytest.fixture(scope="module")
def lives(histories):
    return histories[1]


@pytest.fixture(scope="module")
def events(histories):
    return histories[2]


def test_every_life_has_the_steps_of_its_script_that_clients_saw_and_no_other(lives, events):
    assert len(lives) >= 200
    steps, missing, invented = judge(lives, events)
    assert steps > 500
    assert (missing, invented) == ([], [])


def test_reports_of_clients_agree_with_what_they_said(lives, events):
    for name, life in lives.items():
        got = [row for row in events[name] if row["event"] == "delivered" and row["group"] == GROUP]
        histories = [step for step in life.steps if step.kind is StepKind.TRACED and step.group == GROUP]
        assert sorted((step.tries, "without" not in step.text) for step in histories) == sorted(
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
        histories, _ = histories_of(store, address)
        assert [one.steps for one in histories] == [expected], address


def test_what_is_in_no_record_is_not_reported(store):
    assert histories_of(store, "no such key") == ([], [])


def test_the_log_is_not_scanned_unless_it_is_small(store, lives, monkeypatch):
    monkeypatch.setattr(find, "SMALL_LOG", 0)
    read = []
    original = type(store.commit_log).record_at
    monkeypatch.setattr(
        type(store.commit_log), "record_at", lambda log, offset: read.append(offset) or original(log, offset)
    )
    monkeypatch.setattr(type(store), "messages", lambda *_, **__: pytest.fail("the log was scanned"))
    histories, _ = histories_of(store, lives["dead-0"].unique_key)
    assert len(histories) == 1
    assert len(read) < 120


def kinds(store, address):
    (life,), notes = histories_of(store, address)
    assert notes == []
    return [step.kind.value for step in life.steps if step.kind is not StepKind.PASSED]


def test_transactions_of_4_9_are_open_committed_or_rolled_back():
    with mqtool.open(FIXTURES / "metadata-4.9.7" / "store") as store:
        halves = store.messages(topics=["RMQ_SYS_TRANS_HALF_TOPIC"])
        histories = [kinds(store, one.unique_key) for one in halves]
    committed = ["half", "committed", "waits", "waits", "waits"]  # three groups have not got it
    assert histories == [["half", "waits"], ["half", "waits"], committed, committed, ["half", "rolled-back"]]


def test_a_dead_letter_of_4_9_has_its_tries():
    with mqtool.open(FIXTURES / "orders-4.9.7" / "store") as store:
        dead = next(store.messages(topics=["%DLQ%*"]))
        assert kinds(store, dead.unique_key) == ["sent", "sent-back", "retry", "sent-back", "retry", "dead"]
