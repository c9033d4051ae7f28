"""Which timer messages a recall request drops: waiting messages, a rebuilt timer and a message's life agree.

TimerMessageStore.dequeue, TimerDequeueGetMessageService (5.5.0): a request in the same slot that names the unique key, or
destination and key, whichever of the two records is first.
"""

from pathlib import Path

import pytest

from mqtool.formats import timer, topics
from mqtool.rebuild.timer import rebuild_timer
from mqtool.store import open_store
from mqtool.store.waiting.held_back import WaitingKind, waiting_messages
from mqtool.story import StepKind, histories_of
from tests.support.builder import FIRST_TIME, StoreBuilder

KEY = "a+b"
DUE = FIRST_TIME // 1000 * 1000 + 60_000


def put(builder: StoreBuilder, due: int, **more: str) -> None:
    values = {"UNIQ_KEY": KEY, "REAL_TOPIC": "T", "REAL_QID": "0", "TIMER_OUT_MS": str(due), **more}
    encoded = "".join(f"{name}\1{value}\2" for name, value in values.items()).encode()
    builder.put(topic=topics.TIMER_TOPIC, unique_key=KEY, properties=encoded)


def rebuilt(root: Path, out: Path, read_to: int) -> int:
    """Rebuilds the timer of a store in another directory; returns how many messages were due and not delivered."""
    (root / "config").mkdir(exist_ok=True)
    (root / "config/timercheck").write_bytes(timer.build_checkpoint(timer.TimerCheckpoint(read_to)))
    with open_store(root) as store:
        return rebuild_timer(store, out).missed


def moved(made: Path, root: Path) -> None:
    for name in ("timerwheel", "timerlog"):
        (made / name).rename(root / name)
    (made / "config/timercheck").replace(root / "config/timercheck")


CASES = {
    "its key": (KEY, DUE, True),
    "topic and key": (f"T+{KEY}", DUE, True),
    "another time of the slot": (KEY, DUE + 999, True),
    "a part of the key": ("b", DUE, False),
    "another topic": (f"U+{KEY}", DUE, False),
    "another slot": (KEY, DUE + 1000, False),
}


@pytest.mark.parametrize("request_first", [False, True], ids=["message first", "request first"])
@pytest.mark.parametrize("case", CASES)
def test_a_request_recalls_the_message_that_it_names_in_its_slot(tmp_path, case, request_first):
    name, due, is_recalled = CASES[case]
    builder = StoreBuilder()
    if request_first:
        put(builder, due, TIMER_DEL_UNIQKEY=name)
    put(builder, DUE)
    if not request_first:
        put(builder, due, TIMER_DEL_UNIQKEY=name)
    root = builder.write(tmp_path / "store")
    assert rebuilt(root, tmp_path / "later", DUE + 5000) == (0 if is_recalled else 1)
    assert rebuilt(root, tmp_path / "before", DUE - 5000) == 0
    moved(tmp_path / "before", root)
    with open_store(root) as store:
        waiting = [one.queue_offsets.tolist() for one in waiting_messages(store) if one.kind is WaitingKind.TIMER]
        (life,), _ = histories_of(store, KEY)
    assert waiting == ([] if is_recalled else [[int(request_first)]])
    assert [step.kind for step in life.steps].count(StepKind.WAITS) == (0 if is_recalled else 1)


def test_a_request_that_is_rolled_recalls_nothing_in_the_slot_that_it_leaves(tmp_path):
    """A message is due where a request waits that itself is due three days later."""
    builder, day = StoreBuilder(), 86_400_000
    put(builder, DUE + 3 * day, TIMER_DEL_UNIQKEY=KEY)
    root = builder.write(tmp_path / "store")
    rebuilt(root, tmp_path / "made", DUE)
    unit = timer.unit_at((tmp_path / "made/timerlog/00000000000000000000").read_bytes())
    assert unit is not None
    assert unit.magic == timer.TimerMagic.DEFAULT | timer.TimerMagic.DELETE | timer.TimerMagic.ROLL
    put(builder, unit.deliver_time)
    root = builder.write(tmp_path / "both")
    assert rebuilt(root, tmp_path / "later", unit.deliver_time + 5000) == 1
    rebuilt(root, tmp_path / "before", DUE)
    moved(tmp_path / "before", root)
    with open_store(root) as store:
        assert [one.queue_offsets.tolist() for one in waiting_messages(store)] == [[1]]


def test_a_request_whose_record_is_damaged_recalls_nothing(tmp_path):
    """What it names is unknown, so the message is counted as one that waits."""
    builder = StoreBuilder()
    put(builder, DUE)
    put(builder, DUE, TIMER_DEL_UNIQKEY=KEY)
    root = builder.write(tmp_path / "store")
    assert rebuilt(root, tmp_path / "before", DUE - 5000) == 0
    moved(tmp_path / "before", root)
    with open_store(root) as store:
        assert waiting_messages(store) == []
    with (root / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(builder.puts[1].physical_offset + 4)
        file.write(bytes(4))
    with open_store(root) as store:
        assert [one.queue_offsets.tolist() for one in waiting_messages(store)] == [[0]]
