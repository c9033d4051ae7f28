"""What waits in the timer of a real broker is delivered, once, after the timer's runbook."""

import time

import pytest

import mqtool
from mqtool.repair import Truncate, apply, discard_undo, make_plan, undo
from mqtool.repair.runbooks import RUNBOOKS, Request, run
from tests.support.remoting import Client, records
from tests.support.stores import tree_digest

pytestmark = [pytest.mark.interop, pytest.mark.slow]

KEYS = {
    "mappedFileSizeCommitLog": 262_144,
    "mappedFileSizeConsumeQueue": 20_000,
    "maxHashSlotNum": 1_000,
    "maxIndexNum": 4_000,
    "mappedFileSizeTimerLog": 1_024,
    "waitTimeMillsInSendQueue": 10_000,
}
LATE = [b"late %d" % number for number in range(21)]


def until(found):
    """Waits for what another process does."""
    deadline = time.monotonic() + 60
    while not found():
        assert time.monotonic() < deadline, "did not come about"
        time.sleep(0.05)


def park(address):
    """Has a message delivered by the timer, and leaves others in it, in two files of its log."""
    with Client(address) as client:
        made = client.create_topic("Parked")
        assert made.code == 0
        for number, body in enumerate(LATE):
            assert client.put("Parked", body, properties={"TIMER_DELAY_MS": str(10_000 + 100 * number)}).code == 0
        assert client.put("Parked", b"early", properties={"TIMER_DELAY_MS": "1500"}).code == 0
        until(lambda: len(records(client.pull("Parked"))) == 1)
        until(lambda: int(client.call(28).json["table"]["timerOffsetBehind"]) == 0)


def delivered(address):
    """Bodies, sorted, once all are there: the timer stores with several threads."""
    with Client(address) as client:
        until(lambda: len(records(client.pull("Parked"))) > len(LATE))
        return sorted(body for _, body in records(client.pull("Parked")))


@pytest.mark.night
def test_what_waits_or_was_cut_off_is_delivered_once_after_the_runbook(rocketmq, tmp_path):
    broker = rocketmq("5.5.0").start_broker(tmp_path, **KEYS)
    park(broker.address)
    broker.stop()
    root = tmp_path / "store"
    with mqtool.open(root, KEYS) as store:
        (early,) = store.messages(topics=["Parked"])
    apply(make_plan(root, Truncate(early.physical_offset), config=KEYS), backup_acknowledged=True)
    discard_undo(root)
    (root / "timerlog" / "00000000000000000000").unlink()
    wheel = root / "timerwheel"
    wheel.write_bytes(bytes(wheel.stat().st_size - 32))
    before = tree_digest(root)
    request = Request(apply=True, backup_acknowledged=True, config=KEYS)
    found = run(RUNBOOKS["RB-17"], root, request)
    assert found.repaired, found.markdown()
    undo(root)
    assert tree_digest(root) == before
    assert run(RUNBOOKS["RB-17"], root, request).repaired
    broker = rocketmq("5.5.0").start_broker(tmp_path, **KEYS)
    assert delivered(broker.address) == sorted([b"early", *LATE])
    broker.stop()
