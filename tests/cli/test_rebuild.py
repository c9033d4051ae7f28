"""`mqtool rebuild`: what it prints, how it ends, which options go together."""

import errno
import json
import os
import shutil
import struct
from pathlib import Path

import pytest

from mqtool.cli.exits import ExitCode
from mqtool.formats import timer
from tests.support.damage import damage_case
from tests.support.stores import copy_store, fixture, store_fixture, tree_digest

ORDERS = fixture("orders-5.5.0/store")


def rebuild(mqtool, *arguments):
    return mqtool("rebuild", *arguments, "--format", "json")


def files(root):
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_everything_is_made_and_counted(mqtool, tmp_path):
    result = rebuild(mqtool, "all", ORDERS, "--output", tmp_path / "out")
    assert result.code == 0
    found = result.document
    assert (found["complete"], found["records"], found["next_offset"]) == (True, 1085, 529502)
    assert (found["queues"], found["units"], found["keys"], len(found["index_files"])) == (64, 1117, 3245, 9)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "checkpoint",
        "config",
        "consumequeue",
        "index",
    ]
    assert found["files"] == [
        "checkpoint",
        *sorted(f"config/{path.name}" for path in (tmp_path / "out/config").iterdir()),
    ]


@pytest.mark.parametrize(
    ("what", "made"), [("consumequeue", ["consumequeue"]), ("index", ["index"]), ("metadata", ["checkpoint", "config"])]
)
def test_each_kind_is_made_alone(mqtool, tmp_path, what, made):
    assert rebuild(mqtool, what, ORDERS, "--output", tmp_path / "out").code == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == made


def test_damage_ends_with_1_and_is_listed(mqtool, tmp_path):
    store = damage_case("old-flip-magic@5.5.0-clean", tmp_path / "case")
    result = rebuild(mqtool, "consumequeue", store, "--output", tmp_path / "out")
    assert result.code == 1
    found = result.document
    assert (found["ok"], found["complete"], found["damage_count"], len(found["damage"])) == (False, False, 1, 1)
    damage = found["damage"][0]
    assert damage["end"] - damage["start"] == found["damaged_bytes"] > 0
    assert damage["path"].endswith(f"commitlog/{damage['start'] - damage['position']:020d}")
    assert [note["kind"] for note in found["notes"]] == ["hole"]
    assert f"physical offset {damage['start']}" in result.stderr


def test_of_much_damage_the_first_ranges_are_listed_and_the_others_counted(mqtool, tmp_path):
    store = copy_store("orders-5.5.0", tmp_path)
    path = store / "commitlog" / f"{0:020d}"
    data, position, starts = bytearray(path.read_bytes()), 0, []
    while len(starts) < 13:  # every second record gets another magic
        size = int.from_bytes(data[position : position + 4], "big")
        position += size
        starts.append(position)
        data[position + 4] ^= 0xFF
        position += int.from_bytes(data[position : position + 4], "big")
    path.write_bytes(data)
    result = rebuild(mqtool, "consumequeue", store, "--output", tmp_path / "out")
    assert (result.code, result.document["damage_count"]) == (1, 13)
    assert [start for start in starts if f"at physical offset {start}, " in result.stderr] == starts[:10]
    assert "damage: 3 more ranges" in result.stderr


def test_damage_ends_metadata_with_1_too(mqtool, tmp_path):
    store = damage_case("flip-magic@5.5.0-clean", tmp_path / "case")
    result = rebuild(mqtool, "metadata", store, "--output", tmp_path / "out")
    assert (result.code, result.document["damage_count"], result.document["records"]) == (1, 1, 394)


def test_guesses_and_topics_without_configuration_are_reported(mqtool, tmp_path):
    result = rebuild(mqtool, "metadata", fixture("rollover-5.5.0/store"), "--output", tmp_path / "out")
    assert result.document["unconfigured_topics"] == ["Exact", "Filler", "Roll"]
    values = {(guess["file"], guess["item"]): guess["value"] for guess in result.document["guesses"]}
    assert values["topics.json", "Roll"] == "3 queues, perm 6" or values["topics.json", "Roll"].endswith("perm 6")


def test_values_of_a_timer_that_no_record_states_are_reported_as_guesses(mqtool, tmp_path):
    root = copy_store("timer-5.5.0", tmp_path)
    shutil.rmtree(root / "timerlog")
    (root / "timerwheel").unlink()
    (root / "config" / "timercheck").unlink()
    result = rebuild(mqtool, "timer", root, "--output", tmp_path / "out")
    guesses = {guess["file"]: (guess["item"], guess["value"]) for guess in result.document["guesses"]}
    assert guesses.keys() == {"timerlog", "config/timercheck"}
    assert guesses["timerlog"] == ("write times", "22 of 25 units")
    assert guesses["config/timercheck"][0] == "last_read_time_ms"


def test_settings_are_reported_with_their_evidence(mqtool, tmp_path):
    config = store_fixture("orders-4.9.7").config
    result = rebuild(mqtool, "index", fixture("orders-4.9.7/store"), "--output", tmp_path / "out", "--config", config)
    settings = {row["name"]: (row["value"], row["evidence"]) for row in result.document["settings"]}
    assert settings["index_slots"] == ("100", str(config))
    assert settings["broker_version"][0] == "before 5.0"
    assert settings["consume_queue_size"] == ("2000", "configuration")


def test_one_queue_is_made_alone(mqtool, tmp_path):
    result = rebuild(mqtool, "consumequeue", ORDERS, "--output", tmp_path / "out", "--topic", "Orders", "--queue", "3")
    assert result.document["queues"] == 1
    for path, data in files(tmp_path / "out").items():
        assert (ORDERS / path).read_bytes() == data
        assert path.startswith("consumequeue/Orders/3/")


def test_one_index_file_is_made_alone(mqtool, tmp_path):
    name = sorted(path.name for path in (ORDERS / "index").iterdir())[4]
    assert rebuild(mqtool, "index", ORDERS, "--output", tmp_path / "out", "--file", name).code == 0
    assert files(tmp_path / "out") == {f"index/{name}": (ORDERS / "index" / name).read_bytes()}


def test_an_index_file_behind_one_that_is_not_full_is_refused(mqtool, tmp_path):
    store = copy_store("orders-5.5.0", tmp_path)
    names = sorted(path.name for path in (store / "index").iterdir())
    with (store / "index" / names[3]).open("r+b") as file:
        file.seek(36)
        file.write(struct.pack(">i", 7))
    result = rebuild(mqtool, "index", store, "--output", tmp_path / "out", "--file", names[4])
    assert result.code == 2
    assert "rebuild the complete index" in result.stderr


def test_a_range_of_the_log_is_read_and_no_more(mqtool, tmp_path):
    result = rebuild(mqtool, "consumequeue", ORDERS, "--output", tmp_path / "out", "--offset", "1000:20000")
    assert 0 < result.document["records"] < 100
    assert result.document["complete"]


def test_a_release_can_be_given(mqtool, tmp_path):
    result = rebuild(mqtool, "index", ORDERS, "--output", tmp_path / "out", "--release", "5.1")
    assert result.document["keys"] < 3245


WRONG = {
    "--resume without --state": ["index", "--resume"],
    "--file of queues": ["consumequeue", "--file", "20260101000000000"],
    "--topic of an index": ["index", "--topic", "T"],
    "--queue of everything": ["all", "--queue", "1"],
    "--offset of metadata": ["metadata", "--offset", "0:10"],
    "--offset as a time": ["index", "--offset", "@2026-11-21T00:00:00Z:end"],
    "--state of metadata": ["metadata", "--state", "notes"],
    "no index file's name": ["index", "--file", "x"],
    "no release": ["index", "--release", "five"],
    "a range that ends before it begins": ["index", "--offset", "20:10"],
}


@pytest.mark.parametrize("case", WRONG)
def test_options_that_make_no_sense_together_are_refused(mqtool, tmp_path, case):
    what, *options = WRONG[case]
    result = rebuild(mqtool, what, ORDERS, "--output", tmp_path / "out", *options)
    assert result.code == 2
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_a_directory_inside_the_store_is_refused(mqtool, tmp_path):
    store = copy_store("oversize-5.5.0", tmp_path)
    before = tree_digest(store)
    assert rebuild(mqtool, "index", store, "--output", store / "index2").code == 2
    assert tree_digest(store) == before


def test_progress_tells_rate_and_time_left(mqtool, tmp_path):
    result = rebuild(mqtool, "consumequeue", ORDERS, "--output", tmp_path / "out", "--progress", "json")
    last = json.loads(result.stderr.splitlines()[-1])["progress"]
    assert (last["done"], last["total"], last["finished"]) == (529502, 655360, True) or last["finished"]
    assert last["per_second"] > 0
    assert last["seconds_left"] is not None


def test_a_run_with_notes_leaves_none_behind(mqtool, tmp_path):
    arguments = ("consumequeue", ORDERS, "--output", tmp_path / "out", "--state", tmp_path / "notes")
    assert rebuild(mqtool, *arguments, "--resume").code == 0
    assert not (tmp_path / "notes").exists()


def test_a_filter_that_cannot_be_followed_is_reported(mqtool, tmp_path):
    store = copy_store("cqext-5.5.0", tmp_path)
    path = store / "config" / "consumerFilter.json"
    path.write_bytes(path.read_bytes().replace(b"a > 5", b"a >  "))
    result = rebuild(mqtool, "consumequeue", store, "--output", tmp_path / "out")
    assert result.code == 0
    assert "ExtHigh" in result.document["problems"][0]
    sizes = {path.read_bytes()[:2] for path in (tmp_path / "out/consumequeue_ext/Ext/1").iterdir()}
    assert sizes == {struct.pack(">h", 20)}  # units without a bit map are always right


@pytest.mark.parametrize("output_format", ["table", "wide", "csv", "jsonl"])
def test_every_format_tells_the_records(mqtool, tmp_path, output_format):
    result = mqtool("rebuild", "index", ORDERS, "--output", tmp_path / "out", "--format", output_format)
    assert result.code == 0
    assert "1085" in result.text


def test_a_queue_that_nobody_has_is_said_not_to_be_there(mqtool, tmp_path):
    result = rebuild(mqtool, "consumequeue", ORDERS, "--topic", "Oders", "--output", tmp_path / "out")
    assert (result.code, result.document["ok"]) == (1, False)
    assert "no topic matches 'Oders'" in result.stderr


@pytest.mark.parametrize("existed", [False, True], ids=["new", "empty"])
@pytest.mark.parametrize(("what", "full_at"), [("all", "index"), ("all", "config"), ("timer", "timerwheel")])
def test_a_full_disk_leaves_nothing_to_remove_before_the_next_run(
    mqtool, tmp_path, monkeypatch, what, full_at, existed
):
    store, out = copy_store("timer-5.5.0", tmp_path / "store"), tmp_path / "out"
    if existed:
        out.mkdir()
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    written, write_bytes, pwrite = [], Path.write_bytes, os.pwrite

    def refuse(path):
        if full_at in path.relative_to(out).parts:
            written.extend(out.rglob("*"))
            raise full

    def limited_pwrite(descriptor, data, position):
        refuse(Path(f"/proc/self/fd/{descriptor}").readlink())
        return pwrite(descriptor, data, position)

    def limited_write(path, data):
        refuse(path)
        return write_bytes(path, data)

    monkeypatch.setattr(os, "pwrite", limited_pwrite)
    monkeypatch.setattr(Path, "write_bytes", limited_write)
    result = rebuild(mqtool, what, store, "--output", out)
    assert result.code == ExitCode.IO_ERROR
    assert "No space left" in result.stderr
    assert written
    assert out.exists() is existed
    assert not existed or not list(out.iterdir())
    monkeypatch.undo()
    assert rebuild(mqtool, what, store, "--output", out).code in (0, 1)


def test_a_full_disk_leaves_what_a_resumed_run_continues(mqtool, tmp_path, monkeypatch):
    out, state, pwrite = tmp_path / "out", tmp_path / "state", os.pwrite

    def limited(descriptor, data, position):
        if "index" in Path(f"/proc/self/fd/{descriptor}").readlink().parts:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return pwrite(descriptor, data, position)

    monkeypatch.setattr(os, "pwrite", limited)
    words = ("all", ORDERS, "--output", out, "--state", state)
    assert rebuild(mqtool, *words).code == ExitCode.IO_ERROR
    assert files(out)
    monkeypatch.undo()
    assert rebuild(mqtool, *words, "--resume").code == 0
    assert rebuild(mqtool, "all", ORDERS, "--output", tmp_path / "whole").code == 0
    assert files(out) == files(tmp_path / "whole")


def test_without_its_checkpoint_the_read_time_of_a_timer_is_a_guess(mqtool, tmp_path):
    root = copy_store("timer-5.5.0", tmp_path)
    (root / "config/timercheck").unlink()
    found = rebuild(mqtool, "timer", root, "--output", tmp_path / "out").document
    guessed = [one for one in found["guesses"] if one["item"] == "last_read_time_ms"]
    assert [one["file"] for one in guessed] == ["config/timercheck"]
    made = timer.parse_checkpoint((tmp_path / "out/config/timercheck").read_bytes())
    assert guessed[0]["value"] == str(made.last_read_time_ms)
