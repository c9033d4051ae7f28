"""Renewals of messages that a client works on: what ends one, and a client that is done while one is under way."""

import asyncio
import time
from types import SimpleNamespace

import pytest

from mqtool.protocol import Command, RequestCode
from mqtool.server.clock import ServerClock
from mqtool.server.grpc import receipts
from mqtool.server.grpc.receipts import Receipt, Renewals

CHANGE, ACK = RequestCode.CHANGE_MESSAGE_INVISIBLETIME, RequestCode.ACK_MESSAGE


class Core:
    """A broker that notes what it is asked; `on_change` is called within each change of an invisible time."""

    def __init__(self, code=0, queue=3):
        self.asked, self.on_change, self.code, self.queue = [], lambda: None, code, str(queue)
        self.broker = SimpleNamespace(clock=ServerClock())

    async def ask(self, code, fields, peer):
        self.asked.append((code, int(fields["offset"]), fields["extraInfo"]))
        if code == ACK:
            return Command(0)
        await asyncio.sleep(0)
        self.on_change()
        now = str(time.time_ns() // 1_000_000)
        return Command(self.code, fields={"popTime": now, "invisibleTime": "60000", "reviveQid": self.queue})


def receipt(offset, *, age_ms=0, invisible_ms=5_000, revive_queue=1):
    popped = time.time_ns() // 1_000_000 - age_ms
    return Receipt(0, popped, invisible_ms, revive_queue, 0, "broker-a", 0, offset, offset * 100)


def renewing(core, *given, present=True):
    """Renewals of messages, of which each is due, and which the client names by `h` and their offset."""
    renewals = Renewals(core, lambda _client: present)
    for one in given:
        renewals.add("c@1", "G", "T", "", f"h{one.offset}", one, None)
    return renewals


def turn(renewals):
    assert asyncio.run(renewals.turn()) == receipts.PERIOD_S


def test_each_message_that_is_due_is_renewed_from_its_last_receipt():
    core = Core()
    renewals = renewing(core, receipt(1), receipt(2), receipt(3, invisible_ms=3_600_000))
    turn(renewals)
    assert [(code, offset) for code, offset, _ in core.asked] == [(CHANGE, 1), (CHANGE, 2)]
    found = renewals.take("c@1", "G", "h1")
    assert (found.start, found.invisible_ms, found.revive_queue) == (1, 60_000, 3)


def test_a_message_that_is_taken_while_another_is_renewed_is_not_renewed_any_more():
    core = Core()
    renewals = renewing(core, receipt(1), receipt(2))
    core.on_change = lambda: renewals.take("c@1", "G", "h2") if len(core.asked) == 1 else None
    turn(renewals)
    assert [(code, offset) for code, offset, _ in core.asked] == [(CHANGE, 1)]


@pytest.mark.parametrize(("queue", "codes"), [(3, [CHANGE, ACK]), (999, [CHANGE])], ids=["any order", "in order"])
def test_a_message_that_is_acknowledged_while_it_is_renewed_does_not_come_again(queue, codes):
    core = Core(queue=queue)
    renewals = renewing(core, receipt(1, revive_queue=queue))
    core.on_change = lambda: renewals.take("c@1", "G", "h1", acknowledged=True)
    turn(renewals)
    assert [code for code, *_ in core.asked] == codes
    if ACK in codes:
        assert core.asked[1][2].split(" ")[2:4] == ["60000", "3"], "of the new receipt"


def test_a_renewed_message_that_its_client_does_not_acknowledge_is_never_acknowledged_for_it(monkeypatch):
    monkeypatch.setattr(receipts, "MAX_RENEWED", 1)
    for meanwhile in (
        lambda renewals: renewals.take("c@1", "G", "h1"),  # to change its time, which may fail
        lambda renewals: renewals.add("c@1", "G", "T", "", "h2", receipt(2), None),  # one too many
    ):
        core = Core()
        renewals = renewing(core, receipt(1))
        core.on_change = lambda renewals=renewals, meanwhile=meanwhile: meanwhile(renewals)
        turn(renewals)
        assert [code for code, *_ in core.asked] == [CHANGE]


def test_a_message_that_the_broker_refuses_to_renew_is_left_alone():
    core = Core(code=208)
    renewals = renewing(core, receipt(1))
    turn(renewals)
    turn(renewals)
    assert [code for code, *_ in core.asked] == [CHANGE]


def test_a_message_is_not_renewed_for_ever_nor_after_its_time():
    core = Core()
    longest = receipts.RENEW_MAX_MS
    renewals = renewing(core, receipt(1, age_ms=6_000), receipt(2, age_ms=longest, invisible_ms=longest + 5_000))
    turn(renewals)
    turn(renewals)
    assert core.asked == []
    assert not renewals._table


def test_of_too_many_messages_the_oldest_is_no_longer_renewed(monkeypatch):
    monkeypatch.setattr(receipts, "MAX_RENEWED", 2)
    core = Core()
    turn(renewing(core, receipt(1), receipt(2), receipt(3)))
    assert [offset for _, offset, _ in core.asked] == [2, 3]


def test_what_a_client_leaves_behind_is_visible_to_others_soon():
    core = Core()
    renewals = renewing(core, receipt(1), receipt(2, age_ms=6_000))
    asyncio.run(renewals.free("c@1"))
    assert [(code, offset) for code, offset, _ in core.asked] == [(CHANGE, 1)]


def test_messages_of_a_client_that_is_gone_are_not_renewed_but_visible_soon():
    core = Core()
    renewals = renewing(core, receipt(1), receipt(2, invisible_ms=60_000), present=False)
    turn(renewals)
    turn(renewals)
    assert sorted((code, offset) for code, offset, _ in core.asked) == [(CHANGE, 1), (CHANGE, 2)]
    assert renewals._table == {}
