"""`mqtool clean`: what a dry run lists is what is deleted, and what consumers would miss is counted message by message."""

import json
import os
import re
import shlex
import shutil
import time

import pyarrow.parquet as pq
import pytest

import mqtool as library
from mqtool.cli.exits import ExitCode
from mqtool.errors import RefusedError
from tests.cli.answers import problems
from tests.support.damage import held_lock
from tests.support.stores import copy_store, sizes_of, tree_digest
from tests.support.unreadable import unreadable

HOUR = 3_600_000
NAMES = ["orders-4.9.7", "orders-5.5.0", "rollover-4.9.7", "multipath-5.5.0"]


def aged(root, hours_ago):
    """Sets the last change of each file of the log, oldest first; returns the time that this counts from."""
    with library.open(root) as store:
        paths = [segment.path for segment in store.commit_log.segments]
    now = time.time_ns() // 1_000_000
    for path, hours in zip(paths, hours_ago(len(paths)), strict=True):
        os.utime(path, ns=(0, (now - hours * HOUR) * 1_000_000))
    return now


def store_files(root):
    """Returns the files of a store; what mqtool keeps for an undo is none of them."""
    paths = (path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
    return {path for path in paths if not path.startswith(".mqtool/")}


@pytest.mark.parametrize("keep", [[], ["--no-keep"]], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_what_a_dry_run_lists_is_what_is_deleted(mqtool, tmp_path, name, keep):
    root = copy_store(name, tmp_path)
    aged(root, lambda count: [100 - 40 * (number > count // 2) for number in range(count)])
    before = store_files(root)
    digest, sizes = tree_digest(root), {file: (root / file).stat().st_size for file in before}
    said = mqtool("clean", root, "--dry-run", "--now", "--allow-unread", "-f", "json").document
    assert tree_digest(root) == digest
    result = mqtool("clean", root, "--now", "--yes", "--allow-unread", *keep, "-f", "json")
    after = store_files(root)
    going = {one["file"] for one in said["files"] if one["is_deleted"]}
    assert going
    assert before - after == going | set(said["followers"]) == set(result.document["removed"])
    assert said["freed"] == result.document["freed"] == sum(sizes[file] for file in before - after)
    found = mqtool("verify", root, "-f", "json").document["findings"]
    assert {one["code"] for one in found if one["severity"] != "note"} <= {"config-offset-ahead"}


def test_files_go_from_the_front_when_they_have_expired_and_never_the_last(mqtool, tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    aged(root, lambda count: [80, 10, 80, 80, 80][:count])
    files = mqtool("clean", root, "--dry-run", "--now", "--allow-unread", "-f", "json").document["files"]
    assert [one["is_deleted"] for one in files] == [True, False, False, False, False]
    assert [one["deleted_at"] is None for one in files] == [False] * 4 + [True]
    times = [one["deleted_at"] for one in files[:-1]]
    assert times == sorted(times)
    assert times[1] >= files[1]["modified"] + 72 * HOUR


@pytest.mark.parametrize(
    ("arguments", "goes", "words"),
    [
        (["--as-of", "2026-11-21T12:00:00Z", "--used", "50"], False, "neither the hour nor disk usage"),
        (["--as-of", "2026-11-21T12:00:00Z", "--used", "80"], False, "it expires in"),
        (["--as-of", "2026-11-21T12:00:00Z", "--used", "86"], True, "too full to wait"),
        (["--as-of", "2027-11-21T12:00:00Z", "--used", "80"], True, "it has expired"),
        (["--as-of", "2027-11-21T12:00:00Z", "--used", "50"], False, "neither the hour nor disk usage"),
        (["--as-of", "2027-11-21T12:00:00Z", "--used", "50", "--now"], True, "it was asked for"),
        (
            ["--as-of", "2026-11-21T12:00:00Z", "--used", "50", "--now", "--reserved-hours", "0"],
            True,
            "it was asked for",
        ),
    ],
    ids=str,
)
def test_hour_disk_age_and_request_decide(mqtool, tmp_path, arguments, goes, words):
    root = copy_store("orders-5.5.0", tmp_path)
    with library.open(root) as store:
        for segment in store.commit_log.segments:
            os.utime(segment.path, (1_795_221_000, 1_795_221_000))  # the morning of 2026-11-21
    first = mqtool("clean", root, "--allow-unread", *arguments, "-f", "json").document["files"][0]
    assert (first["is_deleted"], words in first["reason"]) == (goes, True)


def test_the_configuration_gives_the_rules(mqtool, tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    aged(root, lambda count: [5] * count)
    config = tmp_path / "broker.conf"
    config.write_text("fileReservedTime=4\ndeleteWhen=00;12\ndeleteFileBatchMax=2\n", "utf-8")
    files = mqtool("clean", root, "--dry-run", "--now", "--allow-unread", "--config", config, "-f", "json").document[
        "files"
    ]
    assert [one["is_deleted"] for one in files] == [True, True, False, False, False]


def test_a_full_disk_deletes_no_unexpired_file_where_that_is_switched_off_and_none_is_announced(mqtool, tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    aged(root, lambda count: [100] + [5] * (count - 1))
    config = tmp_path / "broker.conf"
    config.write_text("cleanFileForciblyEnable=false\ndeleteWhen=24\n", "utf-8")
    arguments = ("clean", root, "--used", "95", "--allow-unread", "--config", config)
    said = mqtool(*arguments, "-f", "json").document
    assert [one["is_deleted"] for one in said["files"]] == [True, False, False, False, False]
    assert said["trigger"] == "the disk is fuller than allowed"
    assert "unexpired" not in mqtool(*arguments).text


@pytest.mark.parametrize("keep", [[], ["--no-keep"]], ids=str)
def test_at_the_hour_of_deletion_nothing_needs_to_be_asked_for(mqtool, tmp_path, keep):
    root = copy_store("orders-5.5.0", tmp_path)
    aged(root, lambda count: [100] * count)
    config = tmp_path / "broker.conf"
    hours = ";".join(f"{hour:02d}" for hour in range(24))
    config.write_text(f"deleteWhen={hours}\n{sizes_of('orders-5.5.0')}", "utf-8")
    said = mqtool("clean", root, "--dry-run", "--allow-unread", "--config", config, "-f", "json").document
    going = {one["file"] for one in said["files"] if one["is_deleted"]}
    assert len(going) == 4
    result = mqtool("clean", root, "--yes", "--allow-unread", *keep, "--config", config, "-f", "json")
    assert going <= set(result.document["removed"])
    assert not [file for file in going if (root / file).exists()]


@pytest.mark.parametrize("name", ["orders-4.9.7", "orders-5.5.0"])
def test_unread_messages_are_those_at_and_behind_the_committed_offsets(mqtool, tmp_path, name):
    root = copy_store(name, tmp_path)
    said = mqtool("clean", root, "--dry-run", "--used", "95", "-f", "json").document
    reported = {
        (one["file"], one["group"], one["topic"], one["queue_id"], offset)
        for kind in ("unread", "kept_unread")
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
    assert reported == expected
    assert expected
    assert sum(one["unread"] for one in said["files"]) == len(expected)


def test_a_store_that_was_not_closed_in_order_is_left_alone(mqtool, tmp_path):
    root = copy_store("crash-5.5.0", tmp_path)
    before = tree_digest(root)
    result = mqtool("clean", root, "--now", "--yes", "--allow-unread")
    assert (result.code, f"mqtool explain-start {root}" in result.stderr) == (ExitCode.REFUSED, True)
    assert tree_digest(root) == before
    assert mqtool("clean", root, "--now", "--dry-run").code == ExitCode.OK


def test_a_store_in_use_is_left_alone_but_can_be_looked_at(mqtool, tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    with held_lock(root / "lock"):
        (root / "abort").touch()  # as while a broker runs
        result = mqtool("clean", root, "--now", "--yes", "--allow-unread")
        assert result.code == ExitCode.REFUSED
        assert "deletes expired files itself" in result.stderr
        assert "recover" not in result.stderr
        assert mqtool("clean", root, "--now", "--dry-run").code == ExitCode.OK


@pytest.mark.parametrize(
    "arguments", [["--yes", "--as-of", "1"], ["--yes", "--used", "80"], ["--as-of", "soon"]], ids=str
)
def test_options_that_make_no_sense_are_a_usage_error(mqtool, tmp_path, arguments):
    root = copy_store("orders-5.5.0", tmp_path)
    before = tree_digest(root)
    assert mqtool("clean", root, *arguments).code == ExitCode.USAGE
    assert tree_digest(root) == before


def test_json_has_the_documented_fields_and_no_others(mqtool, tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    assert problems("clean", mqtool("clean", root, "--dry-run", "--used", "95", "-f", "json").document) == []


@pytest.mark.parametrize("place", ["consumequeue/Orders/0", "commitlog"])
def test_messages_of_a_file_that_cannot_be_read_may_be_unread_so_nothing_is_deleted(
    mqtool, tmp_path, monkeypatch, place
):
    root = copy_store("orders-5.5.0", tmp_path)
    path = min((root / place).iterdir())
    if place == "commitlog":
        path.unlink()
        path.symlink_to(path.name)
    before = tree_digest(root)
    with unreadable(monkeypatch, path):
        for words in (["--dry-run"], ["--yes", "--now", "--reserved-hours", 1, "--allow-unread"]):
            result = mqtool("clean", root, *words)
            assert result.code == ExitCode.REFUSED
            assert f"{path}: unreadable: cannot be " in result.stderr
    assert tree_digest(root) == before


def test_nothing_is_deleted_without_consent(mqtool, tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    aged(root, lambda count: [100] * count)
    before = tree_digest(root)
    result = mqtool("clean", root, "--now", "--allow-unread", "-f", "json")
    assert (result.code, result.document["removed"]) == (ExitCode.REFUSED, [])
    assert "--yes" in result.stderr
    assert result.document["next_step"] == f"mqtool clean {root} --yes --now --allow-unread"
    assert result.document["deleted_unread"] > 0
    assert tree_digest(root) == before


@pytest.mark.parametrize("keep", [[], ["--no-keep"]], ids=str)
def test_unread_and_waiting_messages_are_deleted_only_with_permission(mqtool, tmp_path, keep):
    root = copy_store("orders-5.5.0", tmp_path)
    aged(root, lambda count: [100] * count)
    before = tree_digest(root)
    with library.open(root) as store:
        last = store.commit_log.segments[-1].base
        records = [message.physical_offset for message in store.messages()]
    gone = sum(offset < last for offset in records)
    result = mqtool("clean", root, "--now", "--yes", *keep)
    assert result.code == ExitCode.REFUSED
    assert " ".join(result.text.split()).startswith(
        f"deletes 0 of {len(records)} messages; keeps {gone} in expired files: 54 unread, 22 waiting for delivery"
    )
    assert "pull-group" in result.text.partition("Unread messages in expired files")[2]
    assert re.search(r"^dry run +no$", result.text, re.MULTILINE)
    assert "4 expired file(s) are kept: export these messages first, or add --allow-unread" in result.stderr
    assert "unless you first write fileReservedTime=173 and cleanFileForciblyEnable=false" in result.stderr
    assert tree_digest(root) == before


def read_to(root, segment):
    """Moves the position of each group to its first message that is in or past a segment, or to the end."""
    table = {}
    with library.open(root) as store:
        begins = store.commit_log.segments[segment].base
        for lag in store.lags():
            queue = store.queue(lag.topic, lag.queue_id)
            ahead = int((queue.units()["physical_offset"] >= begins).sum()) if queue else 0
            table.setdefault(f"{lag.topic}@{lag.group}", {})[lag.queue_id] = (lag.max_offset or 0) - ahead
    (root / "config" / "lmqConsumerOffset.json").write_text(json.dumps({"offsetTable": table}), "utf-8")


@pytest.mark.parametrize("keep", [[], ["--no-keep"]], ids=str)
def test_what_nobody_needs_is_deleted_up_to_the_first_file_with_unread_messages(mqtool, tmp_path, keep):
    root = copy_store("orders-5.5.0", tmp_path)
    aged(root, lambda count: [100] * count)
    read_to(root, 1)
    names = sorted(path.name for path in (root / "commitlog").iterdir())
    result = mqtool("clean", root, "--now", "--yes", *keep, "-f", "json")
    assert (result.code, result.document["deleted_unread"], result.document["withheld_files"]) == (0, 0, 3)
    assert sorted(path.name for path in (root / "commitlog").iterdir()) == names[1:]
    assert "3 expired file(s) are kept" in result.stderr
    reasons = [file["reason"] for file in result.document["files"]]
    assert reasons[1:3] == [
        "somebody still needs its messages",
        "files are deleted in order, and an earlier one is kept",
    ]


def test_messages_without_a_position_of_any_group_are_counted_apart_and_deleted(mqtool, tmp_path):
    """A group that starts there gets the next message or all, as consumeFromWhere states."""
    root = copy_store("orders-5.5.0", tmp_path)
    aged(root, lambda count: [100] * count)
    read_to(root, 1)
    with library.open(root) as store:
        end = store.commit_log.segments[0].end
        claimed = {(lag.topic, lag.queue_id) for lag in store.lags()}
        nobodys = [
            message
            for message in store.messages(end=end)
            if (message.topic, message.queue_id) not in claimed
            and not message.topic.startswith(("rmq_sys_", "RMQ_SYS_", "SCHEDULE_TOPIC_", "%LMQ%"))
        ]
    document = mqtool("clean", root, "--now", "--dry-run", "-f", "json").document
    assert document["deleted_unclaimed"] == len(nobodys) > 0
    assert f"{len(nobodys)} in queues in which no group has a position; keeps" in document["summary"]
    first = [row for row in document["unclaimed"] if row["file"] == document["files"][0]["file"]]
    topics = {one.topic for one in nobodys}
    assert {row["topic"] for row in first} == topics
    export = document["keep"].replace("--output lake", f"--output {tmp_path / 'lake'}")
    assert mqtool(*shlex.split(export)[1:], "-f", "json").code == ExitCode.OK
    kept = pq.read_table(tmp_path / "lake" / "messages", columns=["physical_offset"])["physical_offset"].to_pylist()
    assert {message.physical_offset for message in nobodys} <= set(kept)
    last = max(message.store_timestamp for message in nobodys)
    with library.open(root) as store:
        later = {message.physical_offset for message in store.messages() if message.store_timestamp > last}
    assert later.isdisjoint(kept)
    text = mqtool("clean", root, "--now", "--dry-run").text
    unread, _, unclaimed = text.partition("Messages in expired files that no group has begun to read\n")
    assert nobodys[0].topic in unclaimed.partition("Waiting")[0]
    assert "  -  " not in unread.partition("Unread messages")[2]


def test_an_answer_at_the_terminal_is_consent(mqtool, tmp_path, monkeypatch):
    root = copy_store("orders-5.5.0", tmp_path)
    aged(root, lambda count: [100] * count)
    asked = []
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr("typer.confirm", lambda question, **_: asked.append(question) or len(asked) > 1)
    before = len(list((root / "commitlog").iterdir()))
    assert mqtool("clean", root, "--now", "--allow-unread").code == ExitCode.REFUSED
    assert len(list((root / "commitlog").iterdir())) == before
    assert mqtool("clean", root, "--now", "--allow-unread").code == ExitCode.OK
    assert len(list((root / "commitlog").iterdir())) < before
    assert "54 unread, 22 waiting for delivery" in asked[0]


def test_clean_can_be_undone(mqtool, tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    aged(root, lambda count: [100] * count)
    before = tree_digest(root)
    result = mqtool("clean", root, "--now", "--yes", "--allow-unread", "-f", "json")
    document = result.document
    assert f"take up their space until mqtool discard-undo {root} --yes" in result.stderr
    assert (document["undo"], document["next_step"]) == (f"mqtool undo {root} --yes", f"mqtool verify {root}")
    assert tree_digest(root) != before
    final = mqtool("discard-undo", root, "--dry-run", "-f", "json").document["final"]
    assert " 1065 messages are removed, 54 unread, 22 waiting for delivery, " in final[0]
    assert mqtool(*document["undo"].split()[1:]).code == ExitCode.OK
    assert tree_digest(root) == before


def test_a_timer_whose_messages_were_all_deleted_is_not_past_its_queue(mqtool, tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    aged(root, lambda count: [100] * count)
    assert mqtool("clean", root, "--now", "--yes", "--allow-unread", "-f", "json").document["deleted_waiting"] == 22
    found = mqtool("verify", root, "-f", "json").document["findings"]
    assert not [one for one in found if one["code"].startswith("timer-")]


def test_clean_counts_messages_that_the_broker_has_not_delivered_yet(mqtool, tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    aged(root, lambda count: [100] * count)
    document = mqtool("clean", root, "--dry-run", "--now", "--allow-unread", "-f", "json").document
    size = document["files"][0]["size"]
    # delays of the levels 6 to 18 lie at the physical offsets 337496 to 341917, eight timers at 474454 to 479540
    going = {one["file"]: one["waiting"] for one in document["files"] if one["is_deleted"] and one["waiting"]}
    bases = [offset // size * size for offset in (337_496, 474_454)]
    assert going == {f"commitlog/{bases[0]:020d}": 14, f"commitlog/{bases[1]:020d}": 8}
    assert document["deleted_waiting"] == 22
    assert {one["kind"] for one in document["waiting"]} == {"delay", "timer"}
    assert b"  delay  SCHEDULE_TOPIC_XXXX " in mqtool("clean", root, "--dry-run", "--now", "--allow-unread").stdout


def test_without_an_hour_that_exists_no_time_of_deletion_is_stated(mqtool, tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    aged(root, lambda count: [10] * count)
    config = tmp_path / "broker.conf"
    config.write_text("deleteWhen=25\n", "utf-8")
    files = mqtool("clean", root, "--dry-run", "--used", "10", "--config", config, "-f", "json").document["files"]
    assert {(one["is_deleted"], one["deleted_at"]) for one in files} == {(False, None)}


def test_a_deletion_that_cannot_be_undone_names_the_option_that_needs_no_undo(mqtool, tmp_path, monkeypatch):
    root = copy_store("orders-5.5.0", tmp_path)
    aged(root, lambda count: [100] * count)
    before = tree_digest(root)

    def refuse(*_arguments, **_options):
        raise RefusedError("space", "needs 5 bytes, 4 are free", root)

    monkeypatch.setattr("mqtool.repair.apply", refuse)
    result = mqtool("clean", root, "--now", "--yes", "--allow-unread")
    assert result.code == ExitCode.REFUSED
    assert "needs 5 bytes, 4 are free" in result.stderr
    assert "or add --no-keep to delete without an undo" in result.stderr
    assert tree_digest(root) == before


def break_record(root):
    """Overwrites a magic code in the first segment."""
    with library.open(root) as store:
        at = [message.physical_offset for message in store.messages(limit=10)][-1]
    with min((root / "commitlog").iterdir()).open("r+b") as file:
        file.seek(at + 4)
        file.write(b"????")


def positions(change):
    """Returns a damage: a change of each file of positions."""
    return lambda root: [change(path) for path in (root / "config").glob("lmqConsumerOffset.json*")]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda root: shutil.rmtree(root / "consumequeue" / "Orders"), "00000000000000000000 are in no queue"),
        (positions(lambda path: path.write_bytes(b"?")), "lmqConsumerOffset.json"),
        (positions(lambda path: path.unlink()), "and its .bak are missing"),
        # what a broker writes that cannot start, because topics.json and its .bak are broken (4.9.7, 5.5.0)
        (positions(lambda path: path.write_bytes(b'{"offsetTable":{}}')), "Offset.json has no positions"),
        (break_record, "is damaged at physical offset"),
    ],
    ids=["queues", "broken positions", "no positions", "empty positions", "log"],
)
def test_nothing_is_deleted_if_it_is_unknown_what_is_unread(mqtool, tmp_path, damage, reason):
    root = copy_store("orders-5.5.0", tmp_path)
    read_to(root, 1)
    damage(root)
    aged(root, lambda count: [100 * (number == 0) for number in range(count)])
    digest = tree_digest(root)
    result = mqtool("clean", root, "--now", "--yes", "-f", "json")
    assert (result.code, tree_digest(root)) == (ExitCode.REFUSED, digest)
    assert re.fullmatch(
        rf"deletes 0 of .* which of them are unread is unknown: .*{reason}.*", result.document["summary"]
    )
    assert result.document["next_step"] == f"mqtool verify {root}"
    assert mqtool("clean", root, "--now", "--yes", "--allow-unread").code == ExitCode.OK
