"""Retention, rule by rule: clock and disk usage are set, files are counted; readers and the last file keep theirs."""

import json
import os
from datetime import UTC

import pytest

import mqtool
from mqtool.engine import GetStatus, PutStatus
from mqtool.engine.disk.files import Files
from mqtool.engine.retention.forecast import derived_files_before, forecast
from mqtool.engine.retention.rules import HOUR_MS, RetentionPolicy, disk_state, policy_from_config, trigger_of
from mqtool.errors import UsageError
from mqtool.store.config import broker_config
from tests.support.engine import records_of

MIDNIGHT = 1_700_006_400_000
"""2023-11-15 00:00 UTC."""


class Disks(Files):
    """Tells how full the disk is as it is told, and ages as they are set."""

    def __init__(self, used=0.1):
        self.used = used

    def used_ratio(self, path):
        return self.used


def policy(**more):
    return RetentionPolicy(**{"zone": UTC, **more})


@pytest.fixture
def filled(opened, clock, in_memory):
    """A store of six log files, each an hour older than the next; the newest is as old as `age` hours."""

    def fill(age, used=0.1, *, topic="T", declared=(), **rules):
        config = in_memory / "store" / "config"
        config.mkdir(parents=True)
        topics = {"T": {"topicName": "T"}, "B": {"topicName": "B", "attributes": {"queue.type": "BatchCQ"}}}
        (config / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))
        store = opened(files=Disks(used), policy=policy(**rules), declared=declared)
        clock.time = MIDNIGHT + 12 * HOUR_MS
        for number in range(36):
            clock.time += 1
            store.put(topic, number % 2, b"x" * 500, b"KEYS\x01k%d\x02" % number)
        store.dispatch()
        files = sorted((store.path / "commitlog").iterdir())
        assert len(files) == 6
        for number, path in enumerate(files):
            seconds = clock.time / 1000 - 3600 * (age + len(files) - 1 - number)
            os.utime(path, (seconds, seconds))
        return store

    return fill


def names(paths):
    return [int(path.name) for path in paths if path.parent.name == "commitlog"]


def at(clock, hour):
    clock.time = MIDNIGHT + hour * HOUR_MS


@pytest.mark.parametrize(("age", "gone"), [(60, 0), (70, 4), (72, 5), (200, 5)])
def test_at_the_hour_files_of_72_hours_go_and_the_last_stays(filled, clock, age, gone):
    store = filled(age)
    moved = MIDNIGHT + 28 * HOUR_MS - clock.time
    clock.time += moved
    for path in (store.path / "commitlog").iterdir():
        time = path.stat().st_mtime + moved / 1000
        os.utime(path, (time, time))
    assert len(names(store.clean())) == gone


@pytest.mark.parametrize("topic", ["T", "B"])
def test_a_queue_is_expired_when_its_last_record_was_deleted(filled, clock, topic):
    """ConsumeQueueStore.cleanExpired of 5.5.0."""
    store = filled(60, topic=topic, declared=("queue-missing", "queue-missing-units"))
    for queue_id in (0, 1):
        store.put("SCHEDULE_TOPIC_XXXX", queue_id, b"x")
    store.dispatch()
    assert store.delete_expired_queues() == 0
    bounds = store.queue_bounds(topic, 0)
    later = clock.time + 200 * HOUR_MS
    for _ in range(12):
        clock.time += 1
        store.put(topic, 1, b"y" * 500)
    store.dispatch()
    clock.time = later
    store.clean_soon()
    assert names(store.clean())
    assert (store.queue_bounds(topic, 0), store.delete_expired_queues()) == ((bounds[1], bounds[1]), 1)
    assert store.queue_bounds(topic, 0) == (-1 if topic == "B" else 0, 0)
    assert store.queue_bounds(topic, 1)[1] == 30
    assert store.queue_bounds("SCHEDULE_TOPIC_XXXX", 0) == (1, 1)
    assert not list((store.path / "consumequeue" / topic).glob("0"))
    assert store.put(topic, 0, b"again").queue_offset == 0


def test_at_another_hour_nothing_goes(filled):
    store = filled(200)
    assert store.clean() == []
    assert {verdict.reason for verdict in store.retention()[:-1]} == {"neither the hour nor disk usage requires it"}


def test_deletion_that_was_asked_for_does_not_wait_for_the_hour(filled):
    store = filled(200)
    store.clean_soon()
    assert names(store.clean()) == [0, 4096, 8192, 12288, 16384]


@pytest.mark.parametrize(
    ("used", "age", "gone", "status"),
    [
        (0.75, 100, 0, PutStatus.PUT_OK),
        (0.76, 100, 5, PutStatus.PUT_OK),
        (0.76, 10, 0, PutStatus.PUT_OK),
        (0.86, 10, 5, PutStatus.PUT_OK),
        (0.91, 10, 5, PutStatus.SERVICE_NOT_AVAILABLE),
    ],
)
def test_a_full_disk_lets_expired_files_go_then_all_then_refuses_messages(filled, used, age, gone, status):
    store = filled(age, used)
    assert len(names(store.clean())) == gone
    assert store.put("T", 0, b"x").status is status
    store._components.cleaner._files.used = 0.1
    store.clean()
    assert store.put("T", 0, b"x").ok


def test_messages_are_taken_again_only_below_the_force_ratio(filled):
    store = filled(10, 0.91)
    files = store._components.cleaner._files
    store.clean()
    for used, status in ((0.88, PutStatus.SERVICE_NOT_AVAILABLE), (0.80, PutStatus.PUT_OK), (0.88, PutStatus.PUT_OK)):
        files.used = used
        store.clean()
        assert store.put("T", 0, b"x").status is status


def test_nothing_goes_unexpired_where_that_is_switched_off(filled):
    store = filled(10, 0.89, forcibly=False)
    assert store.clean() == []


def test_a_turn_takes_at_most_so_many_files_with_a_pause_between_two(filled, clock):
    store = filled(200, batch_max=2)
    store.clean_soon()
    clock.slept.clear()
    assert names(store.clean()) == [0, 4096]
    assert clock.slept[0] == 0.1
    assert names(store.clean()) == [8192, 12288]


def test_a_file_in_use_stays_and_keeps_those_behind_it_until_its_time_is_over(filled, clock):
    store = filled(200, destroy_forcibly_ms=1000)
    with store.hold(4096) as held:
        assert held
        store.clean_soon()
        assert names(store.clean()) == [0]
        assert store.clean() == []
        clock.time += 1001
        assert 4096 in names(store.clean())


def test_a_view_of_a_record_outlives_its_file(filled):
    store = filled(200)
    before = store.get_message("T", 0, 0, 1).records[0]
    copy = bytes(before)
    store.clean_soon()
    store.clean()
    assert bytes(before) == copy


def test_queues_and_index_follow_the_log_and_gets_say_so(filled):
    store = filled(200)
    store.clean_soon()
    gone = store.clean()
    lowest = store.min_physical_offset
    kept = [number for number in range(36) if store.query_message("T", f"k{number}").records]
    assert kept == list(range(36 - len(kept), 36))
    for queue_id in range(2):
        low, high = store.queue_bounds("T", queue_id)
        assert 0 < low < high
        first = store.get_message("T", queue_id, low, 1).records[0]
        assert int.from_bytes(first[28:36], "big") >= lowest
        assert store.get_message("T", queue_id, low - 1).status is GetStatus.OFFSET_TOO_SMALL
    assert [path.parent.name for path in gone if path.parent.name == "index"]
    assert (store.path / "consumequeue" / "T" / "0").is_dir()


def test_the_disks_are_judged_by_the_emptiest_log_and_the_queues(tmp_path):
    rules = policy()
    a, b = tmp_path / "a", tmp_path / "b"
    assert disk_state(rules, {a: 0.95, b: 0.2}, 0.2).full == {a}
    assert disk_state(rules, {a: 0.95, b: 0.2}, 0.2).trigger.name == "NONE"
    assert disk_state(rules, {a: 0.2}, 0.91).refuse is True
    assert disk_state(rules, {a: -1.0}, 0.2).trigger.name == "SPACE"


@pytest.mark.parametrize(
    ("log", "queues", "refuse"),
    [(0.91, 0.2, True), (0.87, 0.2, None), (0.80, 0.91, True), (0.80, 0.87, False), (0.2, 0.2, False)],
)
def test_messages_are_taken_again_once_the_disk_of_the_log_has_space(log, queues, refuse):
    """isSpaceToDelete marks the disk as OK by that of the log before it looks at that of the queues."""
    assert disk_state(policy(), {None: log}, queues).refuse is refuse


class UsedByName(Files):
    """Knows the disks of two directories by name."""

    def used_ratio(self, path):
        return {"clA": 0.95, "clB": 0.10}.get(path.name, 0.2)


def test_disks_of_read_only_directories_do_not_count(opened, in_memory, monkeypatch):
    """isSpaceToDelete looks at storePathCommitLog: the free space of read-only directories helps no new file."""
    writable, read_only = (in_memory / "store" / name for name in ("clA", "clB"))
    read_only.mkdir(parents=True)
    store = opened(files=UsedByName(), policy=policy(), commit_log_dirs=(writable,), read_only_dirs=(read_only,))
    assert store.put("T", 0, b"x").ok
    store.clean()
    assert store.put("T", 0, b"x").status is PutStatus.SERVICE_NOT_AVAILABLE
    config = {"storePathCommitLog": str(writable), "readOnlyCommitLogStorePaths": str(read_only)}
    monkeypatch.setattr(Files, "used_ratio", UsedByName.used_ratio)
    with mqtool.open(store.path, config=config) as read:
        found = forecast(read, policy(), MIDNIGHT)
    assert (found.trigger.name, found.used) == ("IMMEDIATE", 0.95)


def test_the_disk_of_a_missing_directory_of_the_log_is_unknown(opened, in_memory):
    """Expired files are then deleted at any hour."""
    missing = in_memory / "store" / "missing"
    store = opened(policy=policy(), commit_log_dirs=(in_memory / "store" / "commitlog", missing))
    assert store.put("T", 0, b"x").ok
    assert store._components.cleaner._disks().trigger.name == "SPACE"


@pytest.mark.parametrize(("hours", "hour", "name"), [((4,), 4, "HOUR"), ((4,), 5, "NONE"), ((0, 16), 16, "HOUR")])
def test_the_hour_counts_from_its_first_to_its_last_minute(hours, hour, name):
    rules = policy(delete_hours=hours)
    disks = disk_state(rules, {}, 0.1)
    disks = disk_state(rules, {None: 0.1}, 0.1) if disks.trigger.name != "NONE" else disks
    for minute in (0, 59):
        now = MIDNIGHT + hour * HOUR_MS + minute * 60_000
        assert trigger_of(rules, now, disks, manual=False).name == name


def test_ratios_are_clamped_as_by_the_broker():
    rules = policy(warning_ratio=0.99, force_ratio=0.1, max_used_per_cent=100)
    assert (rules.warning, rules.force, rules.max_used) == (0.90, 0.30, 0.95)


def test_a_policy_is_read_from_the_brokers_keys():
    keys = {
        "fileReservedTime": "5",
        "deleteWhen": "03;15",
        "diskMaxUsedSpaceRatio": "60",
        "cleanFileForciblyEnable": "false",
    }
    found = policy_from_config(broker_config.load(keys))
    assert (found.reserved_hours, found.delete_hours, found.max_used_per_cent, found.forcibly) == (
        5,
        (3, 15),
        60,
        False,
    )


@pytest.mark.parametrize(
    ("text", "hours"), [("04;16", (4, 16)), ("4;+16", (4, 16)), ("\u0664", (4,)), ("04;", (4,)), (";;", ())]
)
def test_hours_of_deletion_are_read_as_by_java(text, hours):
    """UtilAll.isItTimeToDo: String.split drops empty pieces at the end only, Integer.parseInt takes no blanks."""
    assert policy_from_config(broker_config.load({"deleteWhen": text})).delete_hours == hours


@pytest.mark.parametrize("text", ["at night", "04; 16", "04;;16", "", "0_4"])
def test_hours_that_java_cannot_read_are_an_error(text):
    """The broker's retention ends at the first one, and deletes nothing until an hour before it matches."""
    with pytest.raises(UsageError, match=r"deleteWhen: expected hours such as 04;16, found .* deletes nothing"):
        policy_from_config(broker_config.load({"deleteWhen": text}))


def test_a_part_of_a_disk_is_refused():
    """5.5.0 deletes nothing on a full disk then as long as the store itself is small."""
    assert policy_from_config(broker_config.load({"replicasPerDiskPartition": "1"})) == RetentionPolicy()
    with pytest.raises(UsageError, match=r"replicasPerDiskPartition: expected 1, found 3\. .* Set it to 1"):
        policy_from_config(broker_config.load({"replicasPerDiskPartition": "3"}))


def test_a_batch_queue_loses_the_files_of_deleted_segments(filled):
    store = filled(200, topic="B")
    directory = store.path / "batchconsumequeue" / "B" / "0"
    assert len(list(directory.iterdir())) == 2
    store.clean_soon()
    store.clean()
    kept = [
        record.queue_offset for _, record in records_of([store.path / "commitlog"]) if record and record.queue_id == 0
    ]
    assert store.queue_bounds("B", 0) == (kept[0], 18)
    assert [path.name for path in directory.iterdir()] == [f"{460:020d}"]
    assert store.get_message("B", 0, kept[0] - 1).status is GetStatus.OFFSET_TOO_SMALL
    assert store.get_message("B", 0, kept[0]).queue_offsets == kept


def test_a_batch_queue_whose_segments_are_all_deleted_ends_where_it_ended(filled):
    store = filled(200, topic="B")
    for _ in range(9):
        store.put("T", 0, b"x" * 500)
    store.dispatch()
    for path in (store.path / "commitlog").iterdir():
        os.utime(path, (0, 0))
    store.clean_soon()
    store.clean()
    assert store.queue_bounds("B", 0) == (18, 18)
    assert store.get_message("B", 0, 17).status is GetStatus.OFFSET_TOO_SMALL


def test_ratios_of_the_configuration_are_per_cent():
    keys = {"diskSpaceCleanForciblyRatio": "80", "diskSpaceWarningLevelRatio": "85", "diskMaxUsedSpaceRatio": "60"}
    found = policy_from_config(broker_config.load(keys))
    assert (found.force, found.warning, found.max_used) == (0.80, 0.85, 0.60)


@pytest.mark.parametrize(("topic", "folder", "unit"), [("T", "consumequeue", 20), ("B", "batchconsumequeue", 46)])
def test_only_the_last_unit_of_a_queue_file_decides_whether_it_goes(filled, topic, folder, unit):
    """One of zeros names physical offset 0, though others name records that stay (deleteExpiredFileByOffset)."""
    # The first segment has expired; its messages end in the first file of each queue.
    store = filled(67, topic=topic, declared=["queue-missing-units", "queue-file-missing"])
    directory = store.path / folder / topic
    damaged, healthy = (directory / str(queue_id) / f"{0:020d}" for queue_id in range(2))
    with damaged.open("r+b") as file:
        file.seek(9 * unit)
        file.write(bytes(unit))
    with mqtool.open(store.path) as read:
        assert derived_files_before(read, 4096) == [damaged]
    store.clean_soon()
    assert store.clean() == [store.path / "commitlog" / f"{0:020d}", damaged]
    assert healthy.exists()


def test_without_an_index_files_of_log_and_queues_are_deleted(opened, clock):
    store = opened(index=False, files=Disks(), policy=policy())
    for number in range(36):
        clock.time += 1
        store.put("T", 0, b"x" * 500, b"KEYS\x01k%d\x02" % number)
    store.dispatch()
    for path in (store.path / "commitlog").iterdir():
        os.utime(path, (0, 0))
    store.clean_soon()
    found = store.clean()
    assert names(found) == [0, 4096, 8192, 12288, 16384]
    assert [path.name for path in found if path.parent.name == "0"] == [f"{base:020d}" for base in (0, 200, 400)]
    assert not (store.path / "index").exists()
    assert store.query_message("T", "k35").records == []
