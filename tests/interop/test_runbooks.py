"""Runbooks against the real RocketMQ: what it loses when started on the fault, and what it serves after the runbook."""

import pytest

import mqtool
from mqtool.repair import undo
from mqtool.repair.backup import backup, restore
from mqtool.repair.runbooks import RUNBOOKS, Request, run
from tests.support.damage import base_config, base_messages, damage_case
from tests.support.stores import tree_digest

pytestmark = [pytest.mark.interop, pytest.mark.slow]


def known(base):
    """Physical offsets of all messages that are in a queue, by queue and in order."""
    found = {}
    for row in base_messages(base):
        if row["offset"] >= 0:
            found.setdefault((row["topic"], row["queue"]), []).append((row["offset"], row["phy"]))
    return {key: [physical for _, physical in sorted(rows)] for key, rows in found.items()}


def served(found):
    """Physical offsets that a consumer gets, by queue; none if the store does not open."""
    return {(row["topic"], row["queueId"]): row["served"] for row in found.get("queues", []) if row["served"]}


def count(by_queue, base):
    """Different known messages among what is served."""
    real = {physical for offsets in known(base).values() for physical in offsets}
    return len({physical for offsets in by_queue.values() for physical in offsets} & real)


IN_PLACE = {
    "queue gone, 4.9": ("RB-03", "cq-queue-missing@4.9.7-clean"),
    "all queues gone after a crash, 5.5": ("RB-03", "cq-all-missing@5.5.0-crash"),
    "hole in an older queue file, 4.9": ("RB-02", "cq-hole-old@4.9.7-clean"),
    "units of the end gone, 5.5": ("RB-03", "cq-behind-all@5.5.0-clean"),
    "crash, 5.5": ("RB-08", "none@5.5.0-crash"),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_after_the_runbook_the_real_store_serves_everything_in_order_and_once(name, rocketmq, tmp_path):
    book, fault = IN_PLACE[name]
    base = fault.partition("@")[2]
    config, broker = base_config(base), rocketmq(base.partition("-")[0])
    root = damage_case(fault, tmp_path)
    before = tree_digest(root)
    alone = broker.answers(root, config, work=tmp_path / "alone")
    found = run(RUNBOOKS[book], root, Request(apply=True, backup_acknowledged=True, config=config))
    assert found.repaired, found.markdown()
    total = sum(map(len, known(base).values()))
    assert total - count(served(alone), base) == found.losses.gone + found.losses.by_start + found.losses.unserved
    assert served(broker.answers(root, config, work=tmp_path / "after")) == known(base)
    assert found.losses.gone + found.losses.by_change == 0
    undo(root)
    assert tree_digest(root) == before


BESIDE = {
    "a bit in the third last segment, 4.9": (
        "RB-05",
        "third-last-flip-magic@4.9.7-clean",
        0,
    ),  # a unit vouches for the record
    "a page of zeros in the last segment, 5.5": ("RB-05", "tail-page-hole@5.5.0-crash", None),
    "a middle segment gone, 5.5": ("RB-13", "segment-missing-middle@5.5.0-clean", None),
}


@pytest.mark.parametrize("name", BESIDE)
def test_a_new_store_serves_all_that_was_not_lost_already(name, rocketmq, tmp_path):
    book, fault, gone = BESIDE[name]
    base = fault.partition("@")[2]
    config, broker = base_config(base), rocketmq(base.partition("-")[0])
    root = damage_case(fault, tmp_path)
    with mqtool.open(root, config) as store:
        left = {message.physical_offset for message in store.messages() if hasattr(message, "physical_offset")}
    alone = count(served(broker.answers(root, config, work=tmp_path / "alone")), base)
    run(RUNBOOKS[book], root, Request(apply=True, backup_acknowledged=True, to=tmp_path / "new", config=config))
    after = served(broker.answers(tmp_path / "new", config, work=tmp_path / "after"))
    expected = {key: [at for at in offsets if gone == 0 or at in left] for key, offsets in known(base).items()}
    assert {key: sorted(set(offsets)) for key, offsets in after.items()} == expected
    assert all(offsets == sorted(offsets) for offsets in after.values())
    lost = sum(map(len, known(base).values())) - count(after, base)
    assert gone is None or lost == gone
    assert count(after, base) >= alone


@pytest.mark.night
def test_a_killed_broker_starts_at_once_after_the_runbook(rocketmq, tmp_path):
    keys = {"mappedFileSizeCommitLog": 65536, "mappedFileSizeConsumeQueue": 2000}
    broker = rocketmq("5.5.0").start_broker(tmp_path, **keys)
    assert "SEND_OK" in broker.admin("sendMessage", "-t", "Fresh", "-p", "hello", "-k", "key-1")
    broker.stop(kill=True)
    found = run(RUNBOOKS["RB-08"], broker.store, Request(apply=True, backup_acknowledged=True, config=keys))
    assert found.repaired, found.markdown()
    assert not (broker.store / "abort").exists()
    again = rocketmq("5.5.0").start_broker(tmp_path, **keys)
    assert "key-1" in again.admin("queryMsgByKey", "-t", "Fresh", "-k", "key-1") or "hello" in again.admin(
        "printMsg", "-t", "Fresh"
    )
    again.stop()


@pytest.mark.night
def test_a_backup_beside_a_living_broker_comes_back_and_is_served(rocketmq, tmp_path):
    keys = {"mappedFileSizeCommitLog": 65536, "mappedFileSizeConsumeQueue": 2000}
    broker = rocketmq("5.5.0").start_broker(tmp_path, **keys)
    assert "SEND_OK" in broker.admin("sendMessage", "-t", "Fresh", "-p", "hello", "-k", "key-1")
    made = backup(broker.store, tmp_path / "backup", keys)
    assert made.snapshot.live
    broker.stop(kill=True)
    restore(tmp_path / "backup", tmp_path / "again")
    found = rocketmq("5.5.0").answers(tmp_path / "again", keys, work=tmp_path / "work")
    fresh = [row for row in found["messages"] if row["topic"] == "Fresh"]
    assert len(fresh) == 1
    assert [offset for row in found["queues"] if row["topic"] == "Fresh" for offset in row["served"]] == [
        fresh[0]["physicalOffset"]
    ]
