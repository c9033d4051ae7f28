"""`mqtool clean`: what it says would go is what goes, and what consumers would miss is counted message by message."""

import os

import pytest

import mqtool as library
from mqtool.cli.exits import ExitCode
from tests.cli.answers import problems
from tests.support.damage import held_lock
from tests.support.stores import copy_store, tree_digest

HOUR = 3_600_000
NAMES = ["orders-4.9.7", "orders-5.5.0", "rollover-4.9.7", "multipath-5.5.0"]


def aged(root, hours_ago):
    """Sets the last change of each file of the log, oldest first; returns the time that this counts from."""
    with library.open(root) as store:
        paths = [segment.path for segment in store.commit_log.segments]
    now = paths[-1].stat().st_mtime_ns // 1_000_000
    for path, hours in zip(paths, hours_ago(len(paths)), strict=True):
        os.utime(path, ns=(0, (now - hours * HOUR) * 1_000_000))
    return now


@pytest.mark.parametrize("name", NAMES)
def test_what_a_dry_run_says_is_what_goes(mqtool, tmp_path, name):
    root = copy_store(name, tmp_path)
    aged(root, lambda count: [100 - 40 * (number > count // 2) for number in range(count)])
    before = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
    digest = tree_digest(root)
    said = mqtool("clean", root, "--dry-run", "--now", "-f", "json").document
    assert tree_digest(root) == digest
    result = mqtool("clean", root, "--now", "-f", "json")
    after = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
    going = {one["file"] for one in said["files"] if one["goes"]}
    assert going
    assert before - after == going | set(said["followers"]) == set(result.document["removed"])
    found = mqtool("verify", root, "-f", "json").document["findings"]
    assert {one["code"] for one in found if one["severity"] != "note"} <= {"config-offset-ahead"}


def test_files_go_from_the_front_when_they_have_expired_and_never_the_last(mqtool, tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    aged(root, lambda count: [80, 10, 80, 80, 80][:count])
    files = mqtool("clean", root, "--dry-run", "--now", "-f", "json").document["files"]
    assert [one["goes"] for one in files] == [True, False, False, False, False]
    assert [one["goes_at"] is None for one in files] == [False] * 4 + [True]
    times = [one["goes_at"] for one in files[:-1]]
    assert times == sorted(times)
    assert times[1] >= files[1]["modified"] + 72 * HOUR


@pytest.mark.parametrize(
    ("arguments", "goes", "words"),
    [
        (["--at", "2026-11-21T12:00:00Z", "--used", "50"], False, "neither the hour nor the disk"),
        (["--at", "2026-11-21T12:00:00Z", "--used", "80"], False, "it expires in"),
        (["--at", "2026-11-21T12:00:00Z", "--used", "86"], True, "too full to wait"),
        (["--at", "2027-11-21T12:00:00Z", "--used", "80"], True, "it has expired"),
        (["--at", "2027-11-21T12:00:00Z", "--used", "50"], False, "neither the hour nor the disk"),
        (["--at", "2027-11-21T12:00:00Z", "--used", "50", "--now"], True, "it was asked for"),
        (["--at", "2026-11-21T12:00:00Z", "--used", "50", "--now", "--reserved-hours", "0"], True, "it was asked for"),
    ],
    ids=str,
)
def test_hour_disk_age_and_request_decide(mqtool, tmp_path, arguments, goes, words):
    root = copy_store("orders-5.5.0", tmp_path)
    with library.open(root) as store:
        for segment in store.commit_log.segments:
            os.utime(segment.path, (1_795_221_000, 1_795_221_000))  # the morning of 2026-11-21
    first = mqtool("clean", root, "--dry-run", *arguments, "-f", "json").document["files"][0]
    assert (first["goes"], words in first["reason"]) == (goes, True)


def test_the_configuration_gives_the_rules(mqtool, tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    aged(root, lambda count: [5] * count)
    config = tmp_path / "broker.conf"
    config.write_text("fileReservedTime=4\ndeleteWhen=00;12\ndeleteFileBatchMax=2\n", "utf-8")
    files = mqtool("clean", root, "--dry-run", "--now", "--config", config, "-f", "json").document["files"]
    assert [one["goes"] for one in files] == [True, True, False, False, False]


@pytest.mark.parametrize("name", ["orders-4.9.7", "orders-5.5.0"])
def test_unread_messages_are_those_at_and_behind_the_committed_offsets(mqtool, tmp_path, name):
    root = copy_store(name, tmp_path)
    said = mqtool("clean", root, "--dry-run", "--used", "95", "-f", "json").document
    told = {
        (one["file"], one["group"], one["topic"], one["queue_id"], offset)
        for kind in ("unread", "unread_staying")
        for one in said[kind]
        for offset in range(one["first"], one["last"] + 1)
    }
    expected = set()
    with library.open(root) as store:
        size = store.layout.commit_log_size.value
        places = {(queue.topic, queue.queue_id): queue.units()["physical_offset"] for queue in store.queues()}
        for group, topics in store.metadata.consumer_offsets.items():
            for topic, offsets in topics.items():
                for queue_id, start in offsets.items():
                    units = places.get((topic, queue_id), [])
                    expected |= {
                        (f"commitlog/{int(units[offset]) // size * size:020d}", group, topic, queue_id, offset)
                        for offset in range(start, len(units))
                    }
    assert told == expected
    assert expected
    assert sum(one["unread"] for one in said["files"]) == len(expected)


def test_a_store_that_was_not_closed_in_order_is_left_alone(mqtool, tmp_path):
    root = copy_store("crash-5.5.0", tmp_path)
    before = tree_digest(root)
    result = mqtool("clean", root, "--now")
    assert (result.code, "mqtool recover" in result.stderr) == (ExitCode.REFUSED, True)
    assert tree_digest(root) == before
    assert mqtool("clean", root, "--now", "--dry-run").code == ExitCode.OK


def test_a_store_in_use_is_left_alone_but_can_be_looked_at(mqtool, tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    with held_lock(root / "lock"):
        assert mqtool("clean", root, "--now").code == ExitCode.REFUSED
        assert mqtool("clean", root, "--now", "--dry-run").code == ExitCode.OK


@pytest.mark.parametrize("arguments", [["--at", "1"], ["--used", "80"], ["--dry-run", "--at", "soon"]], ids=str)
def test_options_that_make_no_sense_are_a_usage_error(mqtool, tmp_path, arguments):
    root = copy_store("orders-5.5.0", tmp_path)
    before = tree_digest(root)
    assert mqtool("clean", root, *arguments).code == ExitCode.USAGE
    assert tree_digest(root) == before


def test_json_has_the_documented_fields_and_no_others(mqtool, tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    assert problems("clean", mqtool("clean", root, "--dry-run", "--used", "95", "-f", "json").document) == []
