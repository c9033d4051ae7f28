"""A whole start, on stores of a few records."""

import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from mqtool.errors import NotAStoreError, UnsupportedFormatError, UsageError
from mqtool.formats import checkpoint, commit_log, timer
from mqtool.formats.release import Release
from mqtool.recovery import Outcome, dispatch, predict
from mqtool.recovery.losses import Claims, losses_of, places
from mqtool.recovery.proof import prove
from mqtool.recovery.settings import settings_of
from mqtool.store.config.broker_config import load
from tests.support.damage import held_lock
from tests.support.stores import copy_store, shape_keys, store_fixture, tree_digest
from tests.unit.recovery.stores import QUEUE_FILE, SEGMENT, StoreWriter, named, patch, settings

KEYS = {
    "mappedFileSizeCommitLog": SEGMENT,
    "mappedFileSizeConsumeQueue": QUEUE_FILE,
    "maxHashSlotNum": 10,
    "maxIndexNum": 20,
}
BOTH = pytest.mark.parametrize("release", ["4.9", "5.5"])


@pytest.fixture
def store(tmp_path) -> StoreWriter:
    """Sixty records over three segments, all queued."""
    writer = StoreWriter(tmp_path / "store")
    for number in range(60):
        writer.put(b"%03d" % number + bytes(60))
    return writer.queue()


def start(store: StoreWriter, release: str = "5.5", **more) -> Outcome:
    keys = {**KEYS, **more.pop("keys", {})}
    return predict(store.root, release, keys, **more)


def crashed(store: StoreWriter) -> StoreWriter:
    (store.root / "abort").write_bytes(b"")
    return store


@BOTH
def test_nothing_happens_to_a_store_that_is_whole(store, release):
    found = start(store, release)
    assert found.runs
    assert found.lost == {}
    assert found.after_start == (0, store.end)
    assert found.readable == 60
    assert found.files.deleted == ()
    assert found.verdict == "starts, and loses no message"


@BOTH
def test_not_a_byte_is_touched(store, release):
    patch(store.segment(1), 200, b"\xff" * 8)
    crashed(store)
    before = tree_digest(store.root)
    start(store, release)
    assert tree_digest(store.root) == before


def test_whether_a_broker_holds_a_lock_that_cannot_be_read_is_undecided(store, monkeypatch):
    (store.root / "lock").touch()
    before = start(store).undecided
    monkeypatch.setattr(os, "access", lambda path, _: Path(path).name != "lock")
    (words,) = set(start(store).undecided) - set(before)
    assert words == "whether a process holds the lock file, which cannot be read: if so, the broker exits with -1"


@BOTH
def test_a_torn_record_is_cut_with_its_unit_and_reported_lost(store, release):
    last, size = store.units[-1]
    patch(store.segment(last // SEGMENT), last % SEGMENT + 90, bytes(size - 90))
    found = start(store, release)
    assert found.after_start == (0, last)
    assert found.lost == {"Orders/0": ((59, 59),)}
    assert found.plan is not None
    assert found.plan.cut_at == last
    assert found.verdict == "starts, and loses no message; 1 is lost already"


@BOTH
def test_without_a_checkpoint_a_bad_record_in_the_first_segment_costs_all_later_segments_after_a_crash(store, release):
    patch(store.segment(0), 300, b"\xff" * 40)
    (store.root / "checkpoint").write_bytes(bytes(checkpoint.FILE_SIZE))
    found = start(crashed(store), release)
    assert {name for name in found.files.deleted if name.startswith("commitlog/")} == {
        f"commitlog/{SEGMENT:020d}",
        f"commitlog/{2 * SEGMENT:020d}",
    }
    assert found.runs


def test_what_is_lost_is_reported_by_queue_offset_also_where_only_a_unit_remembers_it(store):
    for number in (3, 4, 9):
        at, size = store.units[number]
        patch(store.segment(at // SEGMENT), at % SEGMENT, bytes(size))
    found = start(store)
    assert found.lost == {"Orders/0": ((3, 4), (9, 9))}
    assert any("offsets a consumer gets zero bytes in place of a message" in fault for fault in found.accepted)


def test_records_in_no_queue_are_lost_and_said_to_stay_in_the_log(store):
    for path in (store.root / "consumequeue" / "Orders" / "0").iterdir():
        path.unlink()
    (store.root / "consumequeue" / "Other" / "0").mkdir(parents=True)
    (store.root / "consumequeue" / "Other" / "0" / f"{0:020d}").write_bytes(
        (2 * SEGMENT).to_bytes(8, "big") + (100).to_bytes(4, "big") + bytes(QUEUE_FILE - 12)
    )
    found = start(store)
    assert found.lost is not None
    assert sum(last - first + 1 for first, last in found.lost["Orders/0"]) > 20
    assert any("stay in the log, but no consumer gets them" in fault for fault in found.accepted)


def test_units_before_the_logs_minimum_have_expired(store):
    store.segment(0).unlink()
    found = start(store)
    assert found.lost == {}
    assert any("they have expired" in rule for rule in found.why)
    assert not any("expired" in fault for fault in found.accepted)


def test_a_dry_look_leaves_open_what_is_lost(store):
    found = start(store, read_log=False)
    assert (found.lost, found.readable) == (None, None)
    assert found.verdict.startswith("starts; whether messages are lost")


@BOTH
def test_a_file_of_a_wrong_length_is_refused_in_the_brokers_words(store, release):
    os.truncate(store.segment(1), 100)
    found = start(store, release)
    assert found.exit == -3
    words = "length not matched message store config value, please check it manually"
    assert found.refusal == f"{store.segment(1)} 100 {words}"
    assert (found.queues, found.lost, found.after_start, found.plan) == (None, None, None, None)


def test_a_refused_crashed_store_of_5_5_loses_its_abort_file_if_the_first_segment_is_the_bad_one(store):
    os.truncate(crashed(store).segment(0), 100)
    assert start(store, "5.5").files.deleted == ("abort",)
    assert start(store, "4.9").files.deleted == ()


def test_4_9_waits_for_ever_where_dispatch_cannot_cross_a_missing_segment(store):
    store.queue(5)
    store.segment(1).unlink()
    found = start(store, "4.9")
    assert found.exit is None
    assert found.hung is not None
    assert found.abort_after is False
    assert found.verdict.startswith("never finishes starting")


def test_the_queues_that_5_5_rebuilds_after_an_orderly_stop_lack_one_record(store):
    store.queue(57)
    found = start(store)
    assert found.queues is not None
    assert found.lost == {"Orders/0": ((57, 57),)}
    assert start(store, "4.9").lost == {}


def test_an_empty_directory_becomes_a_new_store(tmp_path):
    found = predict(tmp_path, "5.5")
    assert (found.after_start, found.queues) == ((-1, 0), {})
    assert "checkpoint" in found.files.created


def test_a_directory_of_other_things_is_no_store(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(NotAStoreError):
        predict(tmp_path, "5.5")


@pytest.mark.parametrize("version", ["5.1", "3.2.6", "", "4.90", "5.50"])
def test_other_releases_are_refused(store, version):
    with pytest.raises(UsageError, match="not known"):
        predict(store.root, version, KEYS)


def test_versions_belong_to_their_release(store):
    assert predict(store.root, "4.9.7", KEYS).release == "4.9"


@pytest.mark.parametrize(
    "keys",
    [{"storeType": "defaultRocksDB"}, {"enableControllerMode": "true"}, {"duplicationEnable": "true"}],
)
def test_other_engines_are_refused_by_name(store, keys):
    with pytest.raises(UnsupportedFormatError, match=next(iter(keys))):
        start(store, keys=keys)


def test_which_node_of_a_dledger_group_it_is_must_be_known(store):
    with pytest.raises(UsageError, match="dLegerSelfId"):
        start(store, keys={"enableDLegerCommitLog": "true"})


def test_a_dledger_directory_is_followed_unless_the_keys_say_otherwise(store):
    plain = start(store, keys={"enableDLegerCommitLog": "false"})
    (store.root / "dledger-n0" / "data").mkdir(parents=True)
    assert start(store, keys={"enableDLegerCommitLog": "false"}).after_start == plain.after_start
    assert start(store).after_start != plain.after_start


def test_without_a_configuration_sizes_are_what_the_files_tell(store):
    assert predict(store.root, "5.5").after_start == (0, store.end)
    assert predict(store.root, "5.5").evidence["segments"].startswith("3 of 3")


def test_a_directory_of_segments_that_is_gone_is_a_log_without_files(store):
    found = predict(store.root, "5.5", {**KEYS, "storePathCommitLog": str(store.root / "elsewhere")})
    assert found.after_start == (-1, 0)
    assert f"consumequeue/Orders/0/{0:020d}" in found.files.deleted


@BOTH
def test_the_lock_is_asked_now_and_leaves_no_question(store, release):
    lock = store.root / "lock"
    lock.write_bytes(b"lock")
    assert [start(store, release).exit, *start(store, release).undecided] == [None]
    with held_lock(lock):
        found = start(store, release)
    assert (found.exit, found.undecided) == (-1, ())
    assert any(rule.startswith("process ") and "holds the lock" in rule for rule in found.why)


LAST = 59
QUEUE_OFFSET = commit_log.field_offset("queue_offset")


def state_offset(store: StoreWriter, number: int, offset: int) -> None:
    """Lets a record state another queue offset: no CRC covers the field."""
    at, _ = store.units[number]
    patch(store.segment(at // SEGMENT), at % SEGMENT + QUEUE_OFFSET, offset.to_bytes(8, "big"))


@BOTH
@pytest.mark.parametrize("stated", [3, LAST - 1])
def test_a_message_counts_at_its_place_and_not_where_another_is_served(store, release, stated):
    state_offset(store.queue(50), LAST, stated)
    found = start(crashed(store), release)
    assert found.lost == {"Orders/0": ((LAST, LAST),)}


@BOTH
@pytest.mark.parametrize("stated", [3, 1000])
def test_a_message_that_states_a_wrong_offset_counts_once(store, release, stated):
    state_offset(store, LAST, stated)
    at, _ = store.units[53]
    patch(store.segment(at // SEGMENT), at % SEGMENT + commit_log.field_offset("magic_code"), bytes(4))
    found = start(crashed(store), release)
    assert found.lost == {"Orders/0": ((53, LAST),)}


@BOTH
def test_an_offset_that_was_given_to_a_later_message_is_no_loss(store, release):
    """As after a start that dropped the unit of a record: the next message took its queue offset."""
    at, size = store.units.pop()
    state_offset(store, LAST - 1, LAST - 1)
    store.put(b"later", queue_offset=LAST).queue()
    assert store.units[-1][0] == at + size
    found = start(store, release)
    assert (found.lost, found.readable) == ({}, 60)


def test_places_contradicted_by_both_neighbours_come_from_units_or_the_record_before():
    stated, physical, counts = np.array([7, 8, 2, 10, 90]), np.arange(5) * 100, np.ones(5, np.int64)
    assert places(stated, counts, physical, None).tolist() == [7, 8, 9, 10, 90]
    units = Claims(np.array([40]), np.array([200]), np.array([100]))
    assert places(stated, counts, physical, units).tolist() == [7, 8, 40, 10, 90]


def test_a_large_size_with_a_good_magic_code_is_a_question_of_memory(store):
    at, _ = store.units[-1]
    patch(store.segment(at // SEGMENT), at % SEGMENT, (0x30000000).to_bytes(4, "big"))
    roomy, tight = start(store, "4.9"), start(store, "4.9", heap_bytes=1 << 30)
    assert roomy.exit is None
    assert any("OutOfMemoryError if not" in question or "OutOfMemoryError" in question for question in roomy.undecided)
    assert (tight.exit, tight.refusal) == (-1, "load: java.lang.OutOfMemoryError: Java heap space")


def test_the_plan_is_ordered_and_complete(store):
    at, size = store.units[-1]
    patch(store.segment(at // SEGMENT), at % SEGMENT, bytes(size))
    plan = start(crashed(store)).plan
    assert plan is not None
    assert plan.scan_from == 0
    assert plan.dispatch_from == plan.cut_at == at
    assert plan.segments[-1].end == at % SEGMENT
    queue = plan.queues["Orders", 0]
    assert sum(file.end for file in queue.files) == 59 * 20


def test_json_has_the_fields_of_an_answer(store):
    found = start(store).as_dict()
    assert found["after_start"] == {"min": 0, "max": store.end}
    assert found["queues"] == {"Orders/0": {"min": 0, "max": 60, "next": 60}}
    assert found["lost"] == {}
    assert set(found["files"]) == {"deleted", "created", "changed"}


def test_a_blank_behind_the_end_moves_the_end_to_the_next_segment_after_a_crash(store):
    store.segment(3).write_bytes(bytes(SEGMENT))
    patch(store.segment(2), store.end % SEGMENT, commit_log.build_blank(SEGMENT - store.end % SEGMENT))
    assert start(crashed(store), "4.9").after_start == (0, 3 * SEGMENT)


def test_a_torn_table_with_a_torn_backup_ends_the_broker_before_its_store(store):
    config = store.root / "config"
    config.mkdir()
    for name in ("topics.json", "topics.json.bak"):
        (config / name).write_text('{"topicConfigTable":{')
    found = start(store)
    assert (found.exit, found.after_start) == (-3, None)
    assert "config/consumerOffset.json" in found.files.created
    assert start(store, whole_broker=False).runs


def test_a_topic_whose_queues_are_of_another_type_is_refused_by_5_5(store):
    config = store.root / "config"
    config.mkdir()
    (config / "topics.json").write_text(
        '{"topicConfigTable":{"Orders":{"topicName":"Orders","attributes":{"queue.type":"BatchCQ"}}}}'
    )
    found = start(store)
    assert found.exit == -3
    assert found.refusal is not None
    assert "should be SimpleCQ, but is BatchCQ" in found.refusal
    assert start(store, "4.9").runs


def test_a_relative_path_is_read_as_well(store, monkeypatch):
    monkeypatch.chdir(store.root.parent)
    assert predict(Path("store"), "5.5", KEYS).runs


def test_a_node_of_dledger_is_named_by_a_plain_word(store):
    with pytest.raises(UsageError, match=r"dLegerSelfId: expected the name of a node, such as n0, found '\.\./n0'"):
        start(store, keys={"enableDLegerCommitLog": "true", "dLegerSelfId": "../n0"})


def test_a_database_of_queues_is_not_followed(store):
    (store.root / "consumequeue" / "CURRENT").write_text("MANIFEST-000001\n")
    with pytest.raises(UnsupportedFormatError, match="holds a RocksDB database"):
        start(store)
    assert start(store, keys={"storeType": "default"}).runs


@pytest.mark.parametrize(
    ("size", "refusal"),
    [(0, None), (timer.WHEEL_FILE_SIZE, None), (1000, "Timer wheel length:1000 != expected:38707200")],
)
def test_5_5_refuses_a_timer_wheel_of_another_length(size, refusal, store):
    (store.root / "timerwheel").touch()
    os.truncate(store.root / "timerwheel", size)
    found = start(store)
    assert (found.exit, found.refusal) == ((-3, refusal) if refusal else (None, None))
    for keys in ({"timerWheelEnable": "false"}, {"timerWheelSnapshotFlush": "true"}):
        assert start(store, keys=keys).runs
    assert start(store, "4.9").runs
    assert start(store, whole_broker=False).runs


def test_5_5_refuses_a_timer_log_file_of_another_length_and_deletes_an_empty_last_one(store):
    directory = store.root / "timerlog"
    directory.mkdir()
    (directory / f"{0:020}").write_bytes(bytes(500))
    (directory / f"{1024:020}").touch()
    keys = {"mappedFileSizeTimerLog": 1024}
    found = start(store, keys=keys)
    words = "length not matched message store config value, please check it manually"
    assert (found.exit, found.refusal) == (-3, f"{directory / f'{0:020}'} 500 {words}")
    assert start(store, keys={**keys, "timerWheelSnapshotFlush": "true"}).refusal == found.refusal
    assert start(store, keys={**keys, "timerWheelEnable": "false"}).runs
    assert start(store, "4.9", keys=keys).runs
    assert start(store, keys=keys, whole_broker=False).runs
    os.truncate(directory / f"{0:020}", 1024)
    intact = start(store, keys=keys)
    assert (intact.runs, intact.files.deleted) == (True, (f"timerlog/{1024:020}",))


@pytest.mark.parametrize("name", ["timerwheel", "config/timercheck"])
def test_5_5_refuses_a_directory_in_place_of_a_file_of_the_timer(name, store):
    (store.root / name).mkdir(parents=True)
    found = start(store)
    assert (found.exit, found.refusal) == (-3, f"java.io.FileNotFoundException: {store.root / name} (Is a directory)")


@BOTH
@pytest.mark.parametrize("value", ["abc", f"{SEGMENT} ", str(1 << 31)])
def test_a_size_that_a_broker_ignores_is_its_default_and_not_that_of_the_files(value, release, store, tmp_path):
    """MixAll.properties2Object leaves the field as it is (4.9.7, 5.5.0)."""
    config = tmp_path / "broker.conf"
    lines = [f"{key}={number}" for key, number in KEYS.items()]
    config.write_text("\n".join([*lines, f"mappedFileSizeCommitLog={value}"]))
    refused = predict(store.root, release, config)
    assert (refused.exit, "length not matched message store config value" in (refused.refusal or "")) == (-3, True)
    config.write_text("\n".join([*lines, f"mappedFileSizeCommitLog={1 << 30}"]))
    assert refused == predict(store.root, release, config)
    config.write_text("\n".join(lines))
    assert predict(store.root, release, config).runs


def test_an_index_size_that_a_broker_ignores_is_its_default(store, tmp_path):
    config = tmp_path / "broker.conf"
    config.write_text("maxHashSlotNum=many\nmaxIndexNum=20")
    found = settings_of(store.root, Release(5, 5), load(config))
    assert (found.index_slots, found.index_entries) == (5_000_000, 20)


def test_what_a_start_also_uses_is_left_open(store):
    (store.root / "epochFileCheckpoint").write_text("")
    undecided = start(store, keys={"enableConsumeQueueExt": "true"}).undecided
    assert [question.split(":")[0].split(" ")[0] for question in undecided] == [
        "consumequeue_ext",
        "epochFileCheckpoint",
    ]


@BOTH
def test_a_queue_whose_directory_is_a_file_gets_no_units(store, release):
    shutil.rmtree(store.root / "consumequeue" / "Orders")
    (store.root / "consumequeue" / "Orders").write_bytes(b"")
    found = start(crashed(store), release)
    assert (
        sum("consumequeue/Orders is not a directory: its messages are in no queue" in one for one in found.accepted)
        == 1
    )
    assert found.lost == {"Orders/0": ((0, LAST),)}


@BOTH
def test_an_index_that_is_a_file_makes_the_store_read_only(store, release):
    store.put(stored=named(KEYS="k"))
    (store.root / "index").write_bytes(b"")
    found = start(crashed(store), release)
    assert any("index/ is not a directory: no index file can be created" in one for one in found.why)
    assert found.lost == {}


def test_whether_an_index_file_is_full_is_left_open_where_its_size_says_nothing(store):
    (store.root / "index").mkdir()
    (store.root / "index" / "20260101000000000").write_bytes(bytes(100))
    store.put(stored=named(KEYS="k"))
    found = predict(crashed(store).root, "5.5")
    assert any(one.startswith("when an index file is full") for one in found.undecided)


def test_a_directory_in_place_of_the_lock_ends_the_start(store):
    (store.root / "lock").mkdir()
    found = start(store)
    assert (found.exit, found.refusal) == (-3, f"java.io.FileNotFoundException: {store.root / 'lock'} (Is a directory)")


def test_dispatch_ends_at_a_further_queue_whose_offset_is_no_number(store):
    store.put(stored=named(INNER_MULTI_DISPATCH="%LMQ%a", INNER_MULTI_QUEUE_OFFSET="x"))
    found = start(store, "4.9", keys={"enableLmq": "true", "enableMultiDispatch": "true"})
    assert found.hung is not None
    assert 'For input string: "x"' in found.hung


@pytest.mark.parametrize(("force", "end"), [("false", 47_784), ("true", 35_292)])
def test_verified_properties_end_the_log_at_a_record_whose_properties_changed(tmp_path, force, end):
    """The ends are those after a start of the real 5.5.0."""
    root, config = copy_store("propcrc-5.5.0", tmp_path), store_fixture("propcrc-5.5.0").config
    log = root / "commitlog" / f"{0:020d}"
    at = log.read_bytes().index(b"KEYS\x01", 35_292)
    patch(log, at + 9, bytes([log.read_bytes()[at + 9] ^ 1]))
    found = predict(root, "5.5.0", {**shape_keys(config), "forceVerifyPropCRC": force})
    assert found.after_start == (0, end)


@pytest.mark.parametrize(("broker_id", "lost"), [(0, {"Orders/0": ((20, 24),)}), (1, None)], ids=["master", "slave"])
def test_a_slave_of_4_9_waits_for_ever_at_a_record_that_a_master_skips(broker_id, lost, tmp_path):
    """ReputMessageService.doReput skips the rest of a segment only if brokerId is 0; recovery reads three segments."""
    writer = StoreWriter(tmp_path / "store")
    for number in range(100):
        writer.put(b"%03d" % number + bytes(60))
    assert [writer.units[number][0] // SEGMENT for number in (24, 25, 99)] == [0, 1, 3]
    patch(writer.segment(0), writer.units[20][0] + 4, b"\1\2\3\4")
    found = start(writer, "4.9", keys={"brokerId": broker_id})
    assert (found.runs, found.lost) == (broker_id == 0, lost)
    assert (found.hung is None) is (broker_id == 0)


def test_the_release_of_a_store_that_does_not_exist_yet_is_assumed(tmp_path):
    found = predict(tmp_path)
    assert (found.release, found.release_evidence) == ("5.5", "assumed: unknown from the store")


def test_a_further_queue_whose_directory_is_a_file_gets_no_units(store):
    lost = LAST + 1
    store.put(stored=named(INNER_MULTI_DISPATCH="%LMQ%a", INNER_MULTI_QUEUE_OFFSET="0"))
    keys = {"enableLmq": "true", "enableMultiDispatch": "true"}
    made = start(store, "4.9", keys=keys).files.created
    assert any("%LMQ%a" in str(path) for path in made)
    (store.root / "consumequeue" / "%LMQ%a").write_bytes(b"")
    found = start(store, "4.9", keys=keys)
    assert found.runs
    assert not any("%LMQ%a" in str(path) for path in found.files.created)
    assert found.after_start == (0, store.end)
    assert f"Orders/0@{lost}" not in found.lost


def test_messages_that_only_units_remember_are_lost_with_their_queue(store):
    for number in range(3):
        store.segment(number).write_bytes(bytes(SEGMENT))
    found = start(crashed(store))
    assert found.lost == {"Orders/0": ((0, LAST),)}


def test_index_files_without_room_for_an_entry_are_refused(store):
    store.put(stored=named(KEYS="k"))
    found = start(crashed(store), "4.9", keys={"maxIndexNum": 1})
    assert "maxIndexNum is too small" in f"{found.refusal} {found.hung}"


@pytest.mark.parametrize("position", [-1, SEGMENT, SEGMENT + 1])
def test_dispatch_does_not_move_where_a_file_of_the_log_has_no_data(position):
    log = SimpleNamespace(
        min_offset=0,
        find=lambda _offset, or_first: SimpleNamespace(base=0, wrote=SEGMENT),
        remainder=lambda _offset: position,
    )
    state = SimpleNamespace(log=log, reput_from=5)
    dispatch._reput(state, None, None)
    assert state.reput_from == 5


def test_units_of_a_queue_that_nobody_reads_after_the_start_are_lost_messages(store):
    """As of a queue whose directory the start deletes."""
    none, claims = np.empty(0, np.int64), Claims(np.array([3, 4]), np.array([300, 400]), np.array([100, 100]))
    proof = prove(settings(store.root), [])
    assert losses_of(proof, {("Gone", 0): claims, ("Empty", 0): Claims(none, none, none)}, {}, 500).lost == {
        ("Gone", 0): ((3, 4),)
    }


@pytest.mark.parametrize("name", ["cqext-4.9.7", "cqext-5.5.0"])
def test_a_broker_refuses_a_file_of_a_queues_extension_of_another_length(name, tmp_path):
    """Both releases load the extension with the queue (ConsumeQueue.load, ConsumeQueueExt.load)."""
    root = copy_store(name, tmp_path)
    config = load(store_fixture(name).config)
    middle = sorted((root / "consumequeue_ext" / "Ext" / "0").iterdir())[1]
    middle.write_bytes(middle.read_bytes()[:500])
    keys = {**config.values, "storePathRootDir": str(root), "storePathCommitLog": str(root / "commitlog")}
    found = predict(root, name[6:9], keys)
    reason = "length not matched message store config value, please check it manually"
    assert (found.exit, found.refusal) == (-3, f"{middle} 500 {reason}")
    assert predict(root, name[6:9], {**keys, "enableConsumeQueueExt": "false"}).runs


def test_an_empty_last_file_of_a_queues_extension_is_deleted_by_5_5_and_refused_by_4_9(tmp_path):
    root = copy_store("cqext-5.5.0", tmp_path)
    last = max((root / "consumequeue_ext" / "Ext" / "0").iterdir())
    last.write_bytes(b"")
    keys = {**KEYS, "enableConsumeQueueExt": True, "mappedFileSizeCommitLog": 65536, "mappedFileSizeConsumeQueue": 2000}
    keys |= {"mappedFileSizeConsumeQueueExt": 1000, "maxHashSlotNum": 100, "maxIndexNum": 400}
    assert last.relative_to(root).as_posix() in predict(root, "5.5", keys).files.deleted
    assert predict(root, "4.9", keys).refusal.startswith(f"{last} 0 length not matched")
