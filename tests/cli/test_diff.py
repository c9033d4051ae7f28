"""`mqtool diff`: what two stores do not have in common, judged by what was done to a copy and by the broker's answers."""

import json
import os
import random
import re
import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from mqtool.cli.exits import ExitCode
from mqtool.diff import log_records, stores
from mqtool.repair.salvage.merge import fillers
from tests.cli.answers import problems
from tests.support.builder import StoreBuilder
from tests.support.damage import base_messages, damage_case
from tests.support.stores import answers, copy_store, fixture, tree_digest
from tests.support.unreadable import unreadable

CRASH = "crash-5.5.0"
SEGMENT = 131072


@pytest.fixture
def diff(mqtool):
    def call(a: Path, b: Path, *arguments: object):
        before = tree_digest(a), tree_digest(b)
        result = mqtool("diff", a, b, "--format", "json", *arguments)
        assert (tree_digest(a), tree_digest(b)) == before
        assert problems("diff", result.document) == []
        assert result.document["equal"] is result.document["ok"] is (result.code == 0)
        return result.document

    return call


@pytest.fixture
def pair(tmp_path):
    """A store and a copy of it that may be changed."""

    def make(name: str = CRASH) -> tuple[Path, Path]:
        for side in ("a", "b"):
            (tmp_path / side).mkdir()
        return copy_store(name, tmp_path / "a"), copy_store(name, tmp_path / "b")

    return make


def records(name: str = CRASH) -> list[tuple[int, int]]:
    """Where the broker found records: physical offsets, half-open."""
    return [(row["physicalOffset"], row["physicalOffset"] + row["storeSize"]) for row in answers(name, "messages")]


def change(store: Path, physical_offset: int) -> None:
    """Turns all bits of one byte of the log over."""
    path = store / "commitlog" / f"{physical_offset // SEGMENT * SEGMENT:020d}"
    data = bytearray(path.read_bytes())
    data[physical_offset % SEGMENT] ^= 0xFF
    path.write_bytes(data)


@pytest.mark.parametrize("release", ["4.9.7", "5.5.0"])
def test_master_and_slave_of_the_real_broker_have_the_same_log_and_queues(diff, release):
    home = fixture(f"ha-{release}")
    found = diff(home / "store-master", home / "store-slave", "--part", "log", "--part", "queues")
    assert found["equal"]
    log = found["log"]
    assert (log["common_start"], log["common_end"]) == (log["min_a"], log["max_a"])
    assert found["queues_compared"] == len(list(home.glob("store-master/consumequeue/*/*")))


def test_consumer_offsets_that_the_slave_has_not_fetched_are_listed(diff):
    home = fixture("ha-5.5.0")
    found = diff(home / "store-master", home / "store-slave")
    text = (home / "store-master/config/consumerOffset.json").read_text()
    table = json.loads(re.sub(r"(\d+):(\d+)", r'"\1":\2', text))["offsetTable"]  # the broker leaves the quotes out
    wanted = {
        (key.split("@")[1], key.split("@")[0], int(queue), offset, None)
        for key, queues in table.items()
        for queue, offset in queues.items()
    }
    assert {(o["group"], o["topic"], o["queue_id"], o["offset_a"], o["offset_b"]) for o in found["offsets"]} == wanted


@pytest.mark.parametrize("name", ["orders-4.9.7", "bcq-5.5.0", "multipath-5.5.0", "dledger-5.5.0"])
def test_a_store_is_equal_to_its_copy(diff, name, tmp_path):
    for side in ("a", "b"):
        (tmp_path / side).mkdir()
    found = diff(copy_store(name, tmp_path / "a"), copy_store(name, tmp_path / "b"))
    assert (found["equal"], found["verdict"]) == (True, "equal")


def test_one_changed_byte_is_one_record_and_the_damaged_side_is_named(diff, pair):
    a, b = pair()
    start, end = records()[700]
    change(b, start + 100)
    found = diff(a, b)
    (region,) = found["log"]["regions"]
    assert (region["start"], region["end"], region["bytes"]) == (start, end, 1)
    assert (region["messages_a"], region["messages_b"]) == (1, 0)
    assert (region["damaged_a"], region["damaged_b"]) == (0, end - start)
    assert (found["log"]["diverges_at"], found["log"]["first_byte"]) == (start, start + 100)
    assert (found["log"]["common_end"], found["queues"], found["offsets"]) == (start, [], [])


@pytest.mark.parametrize("seed", range(6))
def test_changed_bytes_lead_to_exactly_the_records_that_hold_them(diff, pair, seed):
    chance = random.Random(seed)
    a, b = pair("orders-5.5.0")
    frames = records("orders-5.5.0")
    places = sorted(chance.sample(range(frames[-1][1]), 8))
    places = [place for place in places if any(start <= place < end for start, end in frames)]
    for place in places:
        change(b, place)
    touched = [one for one in frames if any(one[0] <= place < one[1] for place in places)]
    found = diff(a, b, "--part", "log")["log"]
    assert [(one["start"], one["end"]) for one in found["regions"]] == joined(touched)
    assert (found["different_bytes"], found["messages_a"]) == (len(places), len(touched))
    assert found["same_bytes"] == frames[-1][1] - len(places)


def joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges in order, those that touch made one."""
    opens = [True, *(before[1] != after[0] for before, after in pairwise(ranges))]
    starts = [one[0] for one, is_open in zip(ranges, opens, strict=True) if is_open]
    ends = [one[1] for one, is_open in zip(ranges, [*opens[1:], True], strict=True) if is_open]
    return list(zip(starts, ends, strict=True))


def test_a_copy_that_was_cut_lacks_the_messages_at_its_end(diff, pair):
    a, b = pair("orders-5.5.0")
    frames = records("orders-5.5.0")
    cut = frames[-40][0]
    for path in (b / "commitlog").iterdir():
        keep = max(0, cut - int(path.name))
        path.write_bytes(path.read_bytes()[:keep].ljust(SEGMENT, b"\0"))
    found = diff(a, b)
    (alone,) = found["log"]["alone"]
    assert (alone["side"], alone["kind"], alone["start"], alone["end"]) == ("a", "end", cut, frames[-1][1])
    assert (alone["messages"], found["log"]["diverges_at"], found["log"]["region_count"]) == (40, cut, 0)
    units = [unit for row in answers("orders-5.5.0", "queues") for unit in row["units"] if unit[1] >= cut]
    assert sum(queue["messages_a"] for queue in found["queues"]) == len(units) > 0
    assert sum(queue["messages_b"] for queue in found["queues"]) == 0


def test_a_log_whose_front_was_deleted_has_not_diverged(diff, pair):
    a, b = pair()
    (b / "commitlog" / f"{0:020d}").unlink()
    found = diff(a, b)
    (alone,) = found["log"]["alone"]
    gone = [one for one in records() if one[0] < SEGMENT]
    assert (alone["side"], alone["kind"], alone["start"], alone["end"]) == ("a", "front", 0, SEGMENT)
    assert (alone["messages"], found["log"]["diverges_at"]) == (len(gone), None)
    assert found["log"]["common_start"] == SEGMENT
    assert all(queue["min_a"] < queue["min_b"] and queue["different"] == 0 for queue in found["queues"])


def test_a_missing_segment_is_a_gap(diff, pair):
    a, b = pair()
    (b / "commitlog" / f"{3 * SEGMENT:020d}").unlink()
    (alone,) = diff(a, b, "--part", "log")["log"]["alone"]
    inside = [one for one in records() if 3 * SEGMENT <= one[0] < 4 * SEGMENT]
    assert (alone["kind"], alone["start"], alone["end"]) == ("gap", 3 * SEGMENT, 4 * SEGMENT)
    assert alone["messages"] == len(inside)


@pytest.mark.parametrize(
    ("case", "kind"), [("tail-stale", "stale"), ("tail-garbage", "garbage"), ("tail-fake-header", "torn")]
)
def test_what_lies_behind_the_end_is_reported_and_makes_no_difference(diff, tmp_path, case, kind):
    a = damage_case("none@5.5.0-crash", tmp_path / "a")
    b = damage_case(f"{case}@5.5.0-crash", tmp_path / "b")
    found = diff(a, b)
    last = max(message["phy"] + message["size"] for message in base_messages("5.5.0-crash"))
    tails = {tail["side"]: tail for tail in found["log"]["tails"]}
    assert found["equal"]
    assert (tails["a"]["kind"], tails["b"]["kind"]) == ("clean", kind)
    assert tails["b"]["start"] == last
    assert tails["b"]["length"] > 0


def test_an_unfinished_record_is_compared_with_the_whole_one(diff, tmp_path):
    a = damage_case("none@5.5.0-crash", tmp_path / "a")
    b = damage_case("tail-torn@5.5.0-crash", tmp_path / "b")
    log = diff(a, b)["log"]
    torn = next(tail for tail in log["tails"] if tail["side"] == "b")
    assert (torn["kind"], log["alone"][0]["messages"]) == ("torn", 1)
    assert 0 < torn["same"] <= torn["length"]
    assert log["diverges_at"] == torn["start"]


def test_what_lies_behind_a_blank_makes_no_difference(diff, pair):
    a, b = pair()
    end = max(end for _, end in records() if end <= SEGMENT)
    assert end + 20 < SEGMENT
    change(b, end + 12)
    found = diff(a, b)
    assert (found["equal"], found["log"]["filler_bytes"], found["log"]["different_bytes"]) == (True, 1, 0)


def test_a_changed_blank_does(diff, pair):
    a, b = pair()
    end = max(end for _, end in records() if end <= SEGMENT)
    change(b, end + 2)
    found = diff(a, b)
    assert (found["equal"], found["log"]["region_count"], found["log"]["first_byte"]) == (False, 1, end + 2)


def test_records_that_fill_a_hole_are_no_messages(diff, pair):
    a, b = pair()
    start, end = records()[900]
    path = b / "commitlog" / f"{start // SEGMENT * SEGMENT:020d}"
    data = bytearray(path.read_bytes())
    data[start % SEGMENT : end % SEGMENT] = b"".join(fillers(start, end, 0))
    path.write_bytes(data)
    log = diff(a, b)["log"]
    assert (log["messages_a"], log["messages_b"], log["regions"][0]["damaged_b"]) == (1, 0, 0)


def test_two_logs_that_went_apart_have_messages_of_their_own(diff, tmp_path):
    one, two = StoreBuilder(), StoreBuilder()
    for number in range(60):
        for side in (one, two):
            side.put(b"same %d" % number, queue_id=number % 2)
    for number in range(30):
        one.put(b"left %d" % number)
    for number in range(50):
        two.put(b"right %d" % number)
    found = diff(one.write(tmp_path / "a"), two.write(tmp_path / "b"))
    log = found["log"]
    assert log["diverges_at"] == one.puts[60].physical_offset
    alone = sum(part["messages"] for part in log["alone"])
    assert (log["messages_a"], log["messages_b"] + alone) == (30, 50)
    (queue,) = found["queues"]
    assert (queue["queue_id"], queue["min_a"], queue["max_a"], queue["min_b"], queue["max_b"]) == (0, 0, 60, 0, 80)
    assert (queue["messages_a"], queue["messages_b"], queue["only_b"]) == (0, 20, [[60, 79]])


def test_queues_that_a_start_completes_differ_from_those_before(diff, tmp_path):
    before = copy_store(CRASH, tmp_path)
    after = tmp_path / "after"
    shutil.copytree(before, after)
    cut = {}
    for row in answers(CRASH, "queues"):
        path = before / "consumequeue" / row["topic"] / str(row["queueId"])
        files = sorted(path.iterdir()) if path.is_dir() else []
        if files and row["units"]:
            data = bytearray(files[-1].read_bytes())
            used = (row["maxOffset"] * 20) % len(data) or len(data)
            data[used - 20 : used] = bytes(20)
            files[-1].write_bytes(data)
            cut[row["topic"], row["queueId"]] = row["maxOffset"] - 1
    found = diff(before, after)
    got = {(queue["topic"], queue["queue_id"]): queue["only_b"] for queue in found["queues"]}
    assert got == {key: [[offset, offset]] for key, offset in cut.items()}
    assert found["log"]["region_count"] == len(found["log"]["alone"]) == 0


def test_a_queue_that_is_only_on_one_side_is_reported(diff, pair):
    a, b = pair()
    row = next(row for row in answers(CRASH, "queues") if row["units"])
    shutil.rmtree(b / "consumequeue" / row["topic"] / str(row["queueId"]))
    (queue,) = diff(a, b)["queues"]
    assert (queue["topic"], queue["queue_id"], queue["min_b"], queue["max_b"]) == (
        row["topic"],
        row["queueId"],
        None,
        None,
    )
    assert queue["messages_a"] == queue["max_a"] - queue["min_a"] > 0


def test_a_changed_unit_is_different_at_its_queue_offset(diff, pair):
    a, b = pair()
    row = next(row for row in answers(CRASH, "queues") if len(row["units"]) > 20)
    path = b / "consumequeue" / row["topic"] / str(row["queueId"]) / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[7 * 20 + 19] ^= 1
    path.write_bytes(data)
    (queue,) = diff(a, b)["queues"]
    assert (queue["different"], queue["first_different"], queue["messages_a"]) == (1, 7, 0)


def test_batch_queues_are_compared_by_batch(diff, pair):
    a, b = pair("bcq-5.5.0")
    units = [row for row in answers("bcq-5.5.0", "batchqueue") if row["kind"] == "unit" and row["queueId"] == 0]
    path = min((b / "batchconsumequeue" / "BatchTopic" / "0").iterdir())
    data = bytearray(path.read_bytes())
    data[46 : 46 + 46] = bytes(46)
    path.write_bytes(data)
    (queue,) = diff(a, b)["queues"]
    first, count = units[1]["baseOffset"], units[1]["batchSize"]
    assert (queue["only_a"], queue["messages_a"]) == ([[first, first + count - 1]], count)


def test_queues_in_rocksdb_are_not_called_equal(diff, pair):
    a, b = pair("rocksdb-cq-5.5.0")
    found = diff(a, b)
    assert not found["equal"]
    assert len(found["not_compared"]) == 2


def test_positions_in_a_database_that_is_not_read_are_not_called_equal(diff, pair):
    roots = pair()
    assert diff(*roots)["equal"]
    for root in roots:
        (root / "config" / "metadata").mkdir(parents=True)
        (root / "config" / "metadata" / "CURRENT").write_text("MANIFEST-000005\n")
    found = diff(*roots)
    assert not found["equal"]
    assert (
        len([words for words in found["not_compared"] if "config/metadata: topics, groups and positions" in words]) == 2
    )


def test_a_store_of_another_system_is_refused(mqtool):
    result = mqtool("diff", fixture("ha-4.9.7/store-master"), fixture("equeue-small/store"))
    assert (result.code, result.stdout) == (4, b"")
    assert "is a store of kind equeue, and this command is for stores of RocketMQ" in result.stderr


@pytest.mark.parametrize("output_format", ["table", "wide", "csv", "jsonl"])
def test_every_format_says_where_the_logs_part(mqtool, pair, output_format):
    a, b = pair()
    start = records()[900][0]
    change(b, start + 90)
    result = mqtool("diff", a, b, "--format", output_format)
    assert result.code == 1
    assert str(start) in result.text


def test_logs_that_have_nothing_in_common_and_logs_that_are_missing_are_said(mqtool, diff, tmp_path):
    roots = []
    for name, base in (("a", 0), ("b", 1 << 20)):
        builder = StoreBuilder(base=base)
        builder.put(b"same")
        roots.append(builder.write(tmp_path / name))
    assert diff(*roots)["equal"] is False
    assert "the logs have no byte in common" in mqtool("diff", *roots).text
    shutil.rmtree(roots[1] / "commitlog")
    found = diff(*roots)
    assert (found["equal"], found["log"]["min_b"], found["log"]["common_start"]) == (False, None, None)


def test_units_of_batches_that_differ_count_with_their_messages(diff, pair):
    a, b = pair("bcq-5.5.0")
    path = b / "batchconsumequeue" / "BatchTopic" / "0" / ("0" * 20)
    data = bytearray(path.read_bytes())
    count = int.from_bytes(data[36:38], "big")
    data[8:12] = (int.from_bytes(data[8:12], "big") + 1).to_bytes(4, "big")
    path.write_bytes(data)
    (queue,) = diff(a, b, "--part", "queues")["queues"]
    assert (queue["topic"], queue["queue_id"], queue["different"], queue["first_different"]) == (
        "BatchTopic",
        0,
        count,
        0,
    )


def test_a_batch_queue_that_is_only_on_one_side_is_reported(diff, pair):
    a, b = pair("bcq-5.5.0")
    shutil.rmtree(b / "batchconsumequeue" / "BatchTopic" / "1")
    units = [row for row in answers("bcq-5.5.0", "batchqueue") if row["kind"] == "unit" and row["queueId"] == 1]
    first, end = units[0]["baseOffset"], units[-1]["baseOffset"] + units[-1]["batchSize"]
    for left, right, side in ((a, b, "a"), (b, a, "b")):
        (queue,) = diff(left, right, "--part", "queues")["queues"]
        assert (queue["topic"], queue["queue_id"]) == ("BatchTopic", 1)
        assert (queue[f"only_{side}"], queue[f"messages_{side}"]) == ([[first, end - 1]], end - first)


def test_a_dledger_log_without_data_files_is_not_called_equal(diff, pair):
    a, b = pair()
    (b / "dledger-n0" / "data").mkdir(parents=True)
    found = diff(a, b)
    assert (found["equal"], found["not_compared"]) == (False, ["b: the DLedger log has no data file, or is not in use"])


@pytest.mark.parametrize("side", ["a", "b"])
def test_a_log_that_is_cut_while_it_is_compared_is_not_called_equal(mqtool, pair, side, monkeypatch):
    a, b = pair("orders-4.9.7")
    cut = (a if side == "a" else b) / "commitlog" / f"{SEGMENT:020d}"

    def compare(*arguments):
        os.truncate(cut, 1000)
        return log_records.compare_bytes(*arguments)

    monkeypatch.setattr(stores, "compare_bytes", compare)
    result = mqtool("diff", a, b)
    assert result.code == ExitCode.IO_ERROR
    assert re.search(rf"ends at physical offset {SEGMENT + 1000}, before \d+: it was truncated during", result.stderr)
    assert cut.name in result.stderr


def test_a_file_that_cannot_be_read_is_named_and_all_others_are_compared(diff, pair, monkeypatch):
    a, b = pair("orders-5.5.0")
    queue = b / "consumequeue" / "Orders" / "0"
    shutil.rmtree(b / "consumequeue" / "Orders" / "1")
    with unreadable(monkeypatch, min(queue.iterdir())):
        found = diff(a, b)
    (words,) = found["not_compared"]
    assert words.startswith(f"queue Orders/0: {min(queue.iterdir())}: cannot be opened")
    assert [(row["topic"], row["queue_id"]) for row in found["queues"]] == [("Orders", 1)]
    with unreadable(monkeypatch, min((b / "commitlog").iterdir())):
        found = diff(a, b)
    assert found["not_compared"][0].startswith("the logs: ")
    assert (found["log"], len(found["queues"])) == (None, 1)


def test_damage_that_both_logs_have_is_no_difference(diff, pair):
    a, b = pair()
    (damaged, _), (start, end) = records()[700], records()[705]
    for root, at in ((a, damaged), (b, damaged), (b, start)):
        change(root, at + 100)
    (region,) = diff(a, b)["log"]["regions"]
    assert (region["start"], region["end"], region["bytes"]) == (start, end, 1)
    assert (region["damaged_a"], region["damaged_b"]) == (0, end - start)


def test_of_very_many_runs_of_queue_offsets_the_first_are_listed_and_all_counted(diff, tmp_path, monkeypatch):
    monkeypatch.setattr(stores, "MAX_RUNS", 2)
    builder = StoreBuilder()
    for _ in range(12):
        builder.put()
    roots = [builder.write(tmp_path / side / "store") for side in "ab"]
    with (roots[1] / "consumequeue" / "Topic" / "0" / f"{0:020d}").open("r+b") as file:
        for number in (1, 4, 5, 8):
            file.seek(number * 20)
            file.write(bytes(20))
    (queue,) = diff(*roots)["queues"]
    assert (queue["messages_a"], queue["messages_b"], queue["only_b"]) == (4, 0, [])
    assert queue["only_a"] == [[1, 1], [4, 5]]
