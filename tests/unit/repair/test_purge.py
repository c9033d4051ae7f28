"""A purge takes the messages of some topics out of the log, and nothing else of anybody's."""

import os
import shutil

import pytest

from mqtool.errors import RefusedError, UnsupportedFormatError, UsageError
from mqtool.formats import timer
from mqtool.repair import Purge, RebuildIndex, apply, discard_undo, make_plan, undo
from mqtool.store.store import open_store
from mqtool.store.waiting.pending import pending_counts
from mqtool.verify import verify
from tests.support.builder import StoreBuilder
from tests.support.stores import copy_store, store_fixture, tree_digest
from tests.support.tiers import one_in


@pytest.fixture
def tmp_path(in_memory):
    return in_memory


def messages(root, without=(), config=None):
    """What matters of every message but its physical offset, in the order of the log."""
    with open_store(root, config) as store:
        return [
            (one.topic, one.queue_id, one.queue_offset, one.body, one.keys, one.unique_key, one.store_timestamp)
            for one in store.messages()
            if one.topic not in without
        ]


def bounds(root, config=None):
    with open_store(root, config) as store:
        return {(one.topic, one.queue_id): (one.min_offset, one.max_offset) for one in store.disk_queues()}


def reached(root, config=None):
    """Messages that queues lead to, by queue and queue offset."""
    with open_store(root, config) as store:
        found = {}
        for queue in store.disk_queues():
            if queue.is_batch:
                continue
            for offset in range(queue.min_offset, queue.max_offset):
                unit = queue.units()[offset - queue.first_offset]
                if unit["physical_offset"] < store.commit_log.min_offset:
                    continue  # of a light message queue
                record = store.commit_log.record(int(unit["physical_offset"]), int(unit["size"]))
                found[queue.topic, queue.queue_id, offset] = record.topic, record.body
        return found


def pending(root, config=None):
    with open_store(root, config) as store:
        return [(one.kind, one.topic, one.group, one.messages, one.next_due) for one in pending_counts(store)]


PURGES = [
    ("lives-5.5.0", "LivesPlain"),
    ("lives-5.5.0", "LivesDelay"),
    ("timer-5.5.0", "Timer"),
    ("orders-4.9.7", "Orders"),
    ("orders-5.5.0", "Orders"),
    ("bcq-5.5.0", "BatchTopic"),
    ("cqext-5.5.0", "Ext"),
    ("multipath-5.5.0", "Paths"),
    ("ha-4.9.7/store-master", "Replica"),
]


@pytest.mark.parametrize(("name", "topic"), one_in(6, PURGES))
def test_only_the_topic_goes_and_undo_brings_all_back(name, topic, tmp_path):
    config = store_fixture(name).config
    root = copy_store(name, tmp_path)
    digest, expected = tree_digest(root), messages(root, {topic}, config=config)
    before, waiting, leading = bounds(root, config), pending(root, config), reached(root, config)
    with open_store(root, config) as store:
        end, known = store.commit_log.max_offset, verify(store).findings
    done = apply(make_plan(root, Purge((topic,)), config=config), backup_acknowledged=True)
    assert {one.code for one in done.verification.findings} <= {one.code for one in known}
    assert messages(root, config=config) == expected
    assert pending(root, config) == [one for one in waiting if one[1] != topic or one[0].value in ("delay", "timer")]
    with open_store(root, config) as store:
        assert store.commit_log.min_offset > end, "no old address leads anywhere"
    after = bounds(root, config)
    for queue, (first, last) in before.items():
        if queue[0] == topic:
            assert after[queue] in ((last, last), (-1, last)), "the next message gets the next queue offset"
        elif not queue[0].startswith("%LMQ%"):
            assert after[queue] == (first, last)
    assert reached(root, config) == {place: found for place, found in leading.items() if found[0] != topic.encode()}
    undo(root)
    assert tree_digest(root) == digest


@pytest.mark.slow
def test_every_key_of_the_other_topics_is_found_and_none_of_the_purged_one(tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    with open_store(root) as store:
        known = {(one.topic, one.unique_key) for one in store.messages() if one.unique_key}
    apply(make_plan(root, Purge(("Orders",))), backup_acknowledged=True, verify_after=False)
    with open_store(root) as store:
        left = {(topic, key) for topic, key in known if store.query_message(topic, key)}
    assert left == {(topic, key) for topic, key in known if topic != "Orders"}
    assert left != known


def log_on_disk(root):
    return sum(one.stat().st_blocks * 512 for one in (root / "commitlog").iterdir())


@pytest.mark.slow
def test_finalize_gives_the_space_of_the_topic_back(tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    before = log_on_disk(root)
    apply(make_plan(root, Purge(("*",))), backup_acknowledged=True, verify_after=False)
    discard_undo(root)
    assert log_on_disk(root) < before * 0.7
    with open_store(root) as store:
        left = {one.topic for one in store.messages()}
    assert left
    assert not [name for name in left if not name.startswith(("SCHEDULE_TOPIC_", "RMQ_SYS_TRANS_", "rmq_sys_"))]


def test_the_plan_states_what_goes_what_stays_and_what_changes(tmp_path):
    root = copy_store("lives-5.5.0", tmp_path)
    notes = "\n".join(make_plan(root, Purge(("LivesPlain", "%DLQ%LivesGroup"))).notes)
    assert "messages of %DLQ%LivesGroup, LivesPlain, " in notes
    assert "offset message ids" in notes
    assert "group LivesGroup has not read 3 messages of LivesPlain/0 that are removed" in notes
    assert "10 dead-letter message(s) of %DLQ%LivesGroup are not delivered yet and are removed" in notes
    assert "RETRY" not in notes


def test_the_plan_states_which_of_its_messages_wait_elsewhere_and_stay(tmp_path):
    timers = "\n".join(make_plan(copy_store("timer-5.5.0", tmp_path), Purge(("Timer",))).notes)
    assert (
        "timer message(s) of these topics are waiting in rmq_sys_wheel_timer: they stay and will be delivered" in timers
    )


@pytest.mark.parametrize(
    ("name", "topic", "words"),
    [
        ("orders-5.5.0", "NoSuch", "there is no topic"),
        ("orders-5.5.0", "SCHEDULE_TOPIC_XXXX", "cannot be left out"),
        ("orders-5.5.0", "%LMQ%dev-1", "the log holds no message of"),
    ],
)
def test_topics_that_cannot_be_purged_are_refused(name, topic, words, tmp_path):
    with pytest.raises(UsageError, match=words):
        make_plan(copy_store(name, tmp_path), Purge((topic,)))


@pytest.mark.parametrize("topic", ["RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"])
def test_half_messages_are_not_purged_where_their_state_is_in_rocksdb(topic, tmp_path):
    builder = StoreBuilder()
    builder.put(topic=topic)
    with pytest.raises(UsageError, match="cannot be left out"):
        make_plan(builder.write(tmp_path / "store"), Purge((topic,)))


def test_a_purge_is_a_plan_of_its_own(tmp_path):
    with pytest.raises(UsageError, match="by itself"):
        make_plan(copy_store("orders-5.5.0", tmp_path), [Purge(("Orders",)), RebuildIndex()])


def test_stores_whose_addresses_others_share_are_refused(tmp_path):
    with pytest.raises(UnsupportedFormatError, match="controller mode"):
        make_plan(copy_store("controller-5.5.0/store-x", tmp_path), Purge(("Control",)))


@pytest.mark.parametrize("key", ["timerRocksDBEnable", "transRocksDBEnable", "indexRocksDBEnable"])
def test_what_refers_to_records_from_a_database_is_refused(key, tmp_path):
    with pytest.raises(UnsupportedFormatError, match=f"rocksdbstore: {key}=true: "):
        make_plan(copy_store("orders-5.5.0", tmp_path), Purge(("Orders",)), config={key: "true"})


@pytest.mark.parametrize("name", ["000007.sst", "000004.log"])
def test_a_database_with_data_is_refused(name, tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    (root / "rocksdbstore").mkdir(exist_ok=True)
    (root / "rocksdbstore" / "000005.log").touch()
    assert make_plan(root, Purge(("Orders",))).steps
    (root / "rocksdbstore" / name).write_bytes(b"x")
    with pytest.raises(UnsupportedFormatError, match="rocksdbstore: has data: timers, transactions or an index"):
        make_plan(root, Purge(("Orders",)))


def test_a_timer_log_of_the_default_file_size_is_updated(tmp_path):
    root = copy_store("timer-5.5.0", tmp_path)
    os.truncate(max((root / "timerlog").iterdir()), timer.DEFAULT_LOG_FILE_SIZE)
    plan = make_plan(root, Purge(("Timer",)))
    assert any("timerlog" in str(step) for step in plan.steps)


def test_a_segment_with_a_wrong_name_is_renamed_first(tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    path = sorted((root / "commitlog").iterdir())[1]
    path.rename(path.with_name(f"{1 << 40:020d}"))
    with pytest.raises(RefusedError, match="segments with a wrong name: run mqtool plan repair first"):
        make_plan(root, Purge(("Orders",)))


def test_damage_is_repaired_first(tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    path = min((root / "commitlog").iterdir())
    with path.open("r+b") as file:
        file.seek(4000)
        file.write(bytes(900))
    with pytest.raises(RefusedError, match="mqtool plan repair first"):
        make_plan(root, Purge(("Orders",)))


def test_a_queue_that_leads_to_no_record_is_repaired_first(tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    with open_store(root) as store:
        path = next(one.files[-1].path for one in store.disk_queues() if one.topic == "SCHEDULE_TOPIC_XXXX")
    with path.open("r+b") as file:
        file.write((1 << 40).to_bytes(8, "big"))
    with pytest.raises(RefusedError, match="points to no record"):
        make_plan(root, Purge(("Orders",)))


@pytest.mark.slow
def test_a_store_without_an_index_gets_none_and_one_without_a_checkpoint_gets_none(tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    shutil.rmtree(root / "index")
    (root / "checkpoint").unlink()
    kept = messages(root, {"Keyed"})
    apply(make_plan(root, Purge(("Keyed",))), backup_acknowledged=True, verify_after=False)
    assert messages(root) == kept
    assert not (root / "index").exists()
    assert not (root / "checkpoint").exists()


def test_messages_of_the_topic_are_removed_from_light_queues_that_have_them_too(tmp_path):
    builder = StoreBuilder()
    for number in range(6):
        more = f"UNIQ_KEY\1u{number}\2INNER_MULTI_DISPATCH\1%LMQ%light\2INNER_MULTI_QUEUE_OFFSET\1{number}\2"
        builder.put(b"purged", topic="Purged", unique_key=f"u{number}", properties=more.encode())
        builder.put(b"kept %d" % number, topic="Kept", unique_key=f"v{number}")
    root = builder.write(tmp_path / "store")
    shutil.copytree(root / "consumequeue/Purged", root / "consumequeue/%LMQ%light")
    config = {"maxHashSlotNum": "50", "maxIndexNum": "200"}
    plan = make_plan(root, Purge(("Purged",)), config=config)
    words = "%LMQ%light/0: 6 messages of the topics are in this queue too, and are removed from it"
    assert [note for note in plan.notes if note.startswith("%LMQ%")] == [words]
    apply(plan, backup_acknowledged=True, verify_after=False)
    assert bounds(root, config) == {("%LMQ%light", 0): (6, 6), ("Purged", 0): (6, 6), ("Kept", 0): (0, 6)}
    assert [one[3] for one in messages(root, config=config)] == [b"kept %d" % number for number in range(6)]
    with open_store(root, config) as store:
        assert verify(store).findings == ()
