"""`dump --follow`: what is appended is printed, what is unfinished is not there yet."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mqtool.records.damage import Damage
from mqtool.store.target import follow
from tests.cli.answers import rows
from tests.support.stores import copy_store, fixture

ROOT = Path(__file__).resolve().parents[2]
ORDERS = "orders-5.5.0"
ROWS = rows(ORDERS)
SEGMENT = "0" * 20


class Ended(Exception):
    """Ends the following."""


class Writer:
    """Appends to the first segment of a store, a few bytes each time that the follower waits."""

    def __init__(self, store: Path, steps: list[int]) -> None:
        self.path = store / "commitlog" / SEGMENT
        self.data = (fixture(f"{ORDERS}/store/commitlog") / SEGMENT).read_bytes()
        self.steps = steps
        self()

    def __call__(self) -> None:
        if not self.steps:
            raise Ended
        end = self.steps.pop(0)
        with self.path.open("r+b") as file:
            file.write(self.data[:end].ljust(len(self.data), b"\0"))


@pytest.fixture
def log(tmp_path):
    store = copy_store(ORDERS, tmp_path)
    for path in (store / "commitlog").iterdir():
        if path.name != SEGMENT:
            path.unlink()
    for path in (store / "consumequeue").rglob("*"):
        if path.is_file():
            path.unlink()
    return store


def followed(store, steps, **wanted):
    """What is told until the writer has taken all its steps: physical offsets, and damage as it is."""
    found = []
    writer = Writer(store, steps)
    with contextlib.suppress(Ended):
        for item in follow(store, wait=writer, **wanted):
            found.append(item if isinstance(item, Damage) else item.physical_offset)
    assert writer.steps == []
    return found


def test_records_are_reported_once_they_are_complete(log):
    ends = [row["physical_offset"] + row["store_size"] for row in ROWS[:20]]
    steps = sorted({*ends[:10], *(end - 1 for end in ends[:10]), *(end + 9 for end in ends[10:])})
    expected = [row["physical_offset"] for row in ROWS[:20]]
    assert followed(log, steps) == expected


def test_following_from_the_end_tells_only_what_is_new(log):
    ends = [row["physical_offset"] + row["store_size"] for row in ROWS[:6]]
    assert followed(log, [ends[2], ends[5]], start=ends[2]) == [row["physical_offset"] for row in ROWS[3:6]]


def test_a_log_that_is_cut_is_reported_as_damage_and_followed_on(log):
    ends = [row["physical_offset"] + row["store_size"] for row in ROWS[:8]]
    found = followed(log, [ends[5], ends[3], ends[7]])
    assert [item for item in found if not isinstance(item, Damage)] == [
        row["physical_offset"] for row in (*ROWS[:6], *ROWS[4:8])
    ]
    (cut,) = [item for item in found if isinstance(item, Damage)]
    assert (cut.start, cut.end) == (ends[3], ends[5])


def test_following_ends_at_the_end_of_its_range(mqtool):
    store = fixture(f"{ORDERS}/store")
    found = mqtool("dump", store, "--follow", "--offset", "0:5000", "--format", "jsonl")
    assert (found.code, found.lines) == (0, [row for row in ROWS if row["physical_offset"] < 5000])


def test_following_ends_at_its_limit(mqtool):
    found = mqtool("dump", fixture(f"{ORDERS}/store"), "--follow", "--limit", 3, "--format", "jsonl")
    assert (found.code, found.lines) == (0, ROWS[:3])


def test_rows_are_shown_at_once_and_ctrl_c_ends_quietly():
    store = str(fixture(f"{ORDERS}/store"))
    command = [sys.executable, "-m", "mqtool", "dump", store, "-F", "-f", "jsonl", "--offset", "-600"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    expected = [row for row in ROWS if row["physical_offset"] >= 529502 - 600]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        assert [json.loads(process.stdout.readline()) for _ in expected] == expected
        process.send_signal(signal.SIGINT)
        assert process.communicate() == (b"", b"mqtool: interrupted: nothing was changed\n")
        assert process.returncode == 130


def test_a_part_of_a_store_cannot_be_followed(mqtool):
    result = mqtool("dump", fixture(f"{ORDERS}/store/commitlog"), "--follow")
    assert (result.code, result.stdout) == (2, b"")
