"""Compacted topics: their log and queue as the broker answered, and each harm named."""

import json
import os
import shutil
import struct

import pytest

import mqtool
from mqtool.cli.app import run
from mqtool.recovery import predict
from mqtool.recovery.losses import LossCount
from mqtool.verify.store import verify
from tests.support.stores import answers, copy_store, fixture, tree_digest

NAME = "compaction-5.5.0"
LOG, QUEUE = "compaction/compactionLog/Compact/0", "compaction/compactionCq/Compact/0"
FIRST, MIDDLE = "0" * 20, f"{16100:020}"


def rows(capsys, path):
    """What `mqtool dump` prints of a directory."""
    assert run(["dump", str(path), "--format", "jsonl"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return [line for line in lines if "physical_offset" in line]


def test_the_compacted_log_holds_what_the_broker_served(capsys):
    found = rows(capsys, fixture(f"{NAME}/store/{LOG}"))
    expected = [line for line in answers(NAME, "messages") if line["kind"] == "message"]
    assert [
        (row["physical_offset"], row["queue_offset"], row["store_size"], row["properties"]["KEYS"]) for row in found
    ] == [(line["phyOffset"], line["queueOffset"], line["size"], line["properties"]["KEYS"]) for line in expected]


def test_its_queue_has_the_units_that_the_broker_read(capsys):
    found = [row for row in rows(capsys, fixture(f"{NAME}/store/{QUEUE}")) if row["size"] > 0]
    expected = [line for line in answers(NAME, "sparsequeue") if line["kind"] == "unit" and line["size"] > 0]
    names = ("base_queue_offset", "batch_size", "physical_offset", "size", "tags_code", "compacted_offset")
    theirs = ("baseOffset", "batchSize", "phyOffset", "size", "tagsCode", "compactedOffset")
    assert [[row[name] for name in names] for row in found] == [[line[name] for name in theirs] for line in expected]


def test_an_undamaged_compacted_topic_is_clean(tmp_path):
    root = copy_store(NAME, tmp_path)
    before = tree_digest(root)
    with mqtool.open(root) as store:
        found = verify(store)
    assert found.findings == ()
    assert [check.detail for check in found.checks if check.area == "compaction"] == [
        "54 record(s) in 1 compacted queue(s)"
    ]
    assert tree_digest(root) == before


HARM = {
    "body": (f"{LOG}/{FIRST}", 200, b"\0\1", "compaction-damage"),
    "queue offset": (f"{LOG}/{FIRST}", 745 + 20, struct.pack(">q", 5), "compaction-order"),
    "unit": (f"{QUEUE}/{FIRST}", 46, struct.pack(">q", 5), "compaction-unit"),
    "unit gone": (f"{QUEUE}/{FIRST}", 0, bytes(2300), "compaction-unit"),
}


@pytest.mark.parametrize("harm", list(HARM))
def test_each_harm_is_named(harm, tmp_path):
    root = copy_store(NAME, tmp_path)
    file, position, data, code = HARM[harm]
    with (root / file).open("r+b") as target:
        target.seek(position)
        target.write(data)
    with mqtool.open(root) as store:
        found = {finding.code: finding for finding in verify(store).findings}
    assert code in found
    assert found[code].lost_messages == (code == "compaction-damage")


def test_messages_after_the_end_of_a_compacted_log_are_not_served(tmp_path):
    root = copy_store(NAME, tmp_path)
    for part in (LOG, QUEUE):
        (root / part / f"{64400:020}").unlink()
    units = [line for line in answers(NAME, "sparsequeue") if line["kind"] == "unit"]
    last = max(line["baseOffset"] for line in units if line["phyOffset"] < 64400)
    with mqtool.open(root) as store:
        result = verify(store)
    (finding,) = [finding for finding in result.findings if finding.code == "compaction-missing"]
    assert finding.evidence == f"{102 - last} message(s), queue offsets {last + 1} to 102"
    assert result.next_start.losses == LossCount(unserved=102 - last)
    assert result.next_start.do_not_start is True


def test_a_start_that_dispatches_messages_again_compacts_them(tmp_path):
    root = copy_store(NAME, tmp_path)
    shutil.rmtree(root / "compaction")
    (root / "abort").touch()
    (root / "checkpoint").write_bytes(bytes(4096))
    with mqtool.open(root) as store:
        result = verify(store)
    assert [(finding.code, finding.severity.value) for finding in result.findings if "compaction" in finding.code] == [
        ("compaction-missing", "warning")
    ]
    assert result.next_start.losses == LossCount()


STARTS = {
    "no queue file": (lambda root: (root / QUEUE / MIDDLE).unlink(), "log file mismatch with consumeQueue file"),
    "no log file": (lambda root: (root / LOG / MIDDLE).unlink(), "consumeQueue file mismatch with log file"),
    "deleted file": (
        lambda root: shutil.copy(root / LOG / FIRST, root / LOG / f"{FIRST}.delete"),
        f'NumberFormatException: For input string: "{FIRST}.delete"',
    ),
    "short log file": (lambda root: os.truncate(root / LOG / MIDDLE, 5000), ""),
    "no directory of queues": (lambda root: shutil.rmtree(root / "compaction/compactionCq"), ""),
}
"""What 5.5.0 does not load, with its words; "" if it starts and serves nothing (tests/interop/test_salvage.py)."""


@pytest.mark.parametrize("damage", list(STARTS))
def test_a_forecast_says_whether_compacted_topics_are_loaded(damage, tmp_path):
    root = copy_store(NAME, tmp_path)
    change, refusal = STARTS[damage]
    change(root)
    outcome = predict(root)
    if refusal:
        assert outcome.exit == -3
        assert outcome.refusal.startswith("load compactionLog Compact:0 exception: ")
        assert refusal in outcome.refusal
    else:
        assert outcome.lost == {"Compact/0": ((0, 102),)}
    assert predict(root, config={"enableCompaction": "false"}).lost == {}


def test_files_without_their_pair_and_leftovers_are_named(tmp_path):
    root = copy_store(NAME, tmp_path)
    (root / QUEUE / FIRST).rename(root / QUEUE / f"{FIRST}.delete")
    (root / LOG / "compacting").mkdir(exist_ok=True)
    (root / LOG / "compacting" / FIRST).touch()
    with mqtool.open(root) as store:
        found = {(finding.code, finding.severity.value) for finding in verify(store).findings}
    assert found >= {("compaction-file", "error"), ("compaction-leftover", "error"), ("compaction-leftover", "note")}


def test_what_belongs_to_no_queue_and_a_torn_end_are_named(tmp_path):
    root = copy_store(NAME, tmp_path)
    last = max(path for path in (root / LOG).iterdir() if path.is_file())
    data = last.read_bytes()
    start = following = 0
    while size := struct.unpack_from(">i", data, following)[0]:
        start, following = following, following + size
    last.write_bytes(data[: start + 60].ljust(len(data), b"\0"))
    (root / LOG / "notes").touch()
    with mqtool.open(root) as store:
        found = [finding for finding in verify(store).findings if finding.code.startswith("compaction")]
    leftovers = [one for one in found if one.code == "compaction-leftover"]
    assert [(one.file.rpartition("/")[2], one.evidence) for one in leftovers] == [("notes", "belongs to no queue")]
    assert any(one.code == "compaction-damage" and one.file.endswith(last.name) for one in found)
