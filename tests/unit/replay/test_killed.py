"""Wherever a replay dies, running it again leaves no message out and none there twice."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import mqtool
from mqtool.engine import open_store
from mqtool.engine.start.detect import options_for
from mqtool.errors import UsageError
from mqtool.records.damage import Damage
from mqtool.replay import to_store
from mqtool.replay.to_store import replay
from tests.support.replay_killed import request
from tests.support.stores import copy_store

ROOT = Path(__file__).resolve().parents[3]
NAME = "rollover-5.5.0"


def run_until(source: Path, directory: Path, step: int) -> bool:
    """Replays; returns whether the run was killed."""
    command = [sys.executable, "-m", "tests.support.replay_killed", str(source), str(directory), str(step)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode in (0, 9), ran.stderr
    return ran.returncode == 9


def contents(root: Path) -> list[tuple[Any, ...]]:
    """The messages of a store in the order of its log."""
    with mqtool.open(root) as store:
        found = [one for one in store.messages() if not isinstance(one, Damage)]
    return [(one.topic, one.queue_id, one.body, one.flag, tuple(one.properties.items())) for one in found]


@pytest.mark.slow
@pytest.mark.parametrize("step", [1, 2, 3, 10, 97])
def test_a_run_killed_at_a_step_is_completed_by_the_next(tmp_path, step):
    source = copy_store(NAME, tmp_path)
    assert run_until(source, tmp_path, step)
    report = replay(request(source, tmp_path))
    assert contents(tmp_path / "target") == contents(source)
    lines = [json.loads(line) for line in (tmp_path / "ids").read_text().splitlines()]
    with mqtool.open(source) as store, mqtool.open(tmp_path / "target") as target:
        old = [one.physical_offset for one in store.messages() if not isinstance(one, Damage)]
        new = [one.physical_offset for one in target.messages() if not isinstance(one, Damage)]
    assert [line["old"]["physical_offset"] for line in lines] == old
    assert [line["new"]["physical_offset"] for line in lines] == new
    assert replay(request(source, tmp_path)).topics.total() == 0
    assert report.refused == 0


@pytest.mark.slow
def test_runs_killed_one_after_the_other_come_to_the_end(tmp_path):
    source = copy_store(NAME, tmp_path)
    runs = 0
    while run_until(source, tmp_path, 90):
        runs += 1
    assert runs > 1
    assert contents(tmp_path / "target") == contents(source)


@pytest.mark.slow
def test_messages_of_others_after_a_kill_are_reported_from_its_own(tmp_path):
    source = copy_store(NAME, tmp_path)
    assert run_until(source, tmp_path, 30)
    with open_store(tmp_path / "target", options_for(tmp_path / "target")) as store:
        for number in range(5):
            assert store.put("Others", 0, b"%d" % number).ok
    replay(request(source, tmp_path))
    found = contents(tmp_path / "target")
    assert [one for one in found if one[0] != "Others"] == contents(source)
    assert [one[2] for one in found if one[0] == "Others"] == [b"0", b"1", b"2", b"3", b"4"]


class KilledError(Exception):
    """Stands for the end of the process."""


def replay_killed_before_saving(asked, monkeypatch):
    """A run that ends after it has stored messages, before it saves its position."""

    def killed(_, answers):
        list(answers)
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(to_store._Run, "_take", killed)
        with pytest.raises(KilledError):
            replay(asked)


def test_a_run_killed_before_its_position_is_saved_finds_its_messages_in_a_log_outside_the_root(tmp_path, monkeypatch):
    target, log = tmp_path / "target", tmp_path / "log"
    log.mkdir()
    config = tmp_path / "broker.conf"
    config.write_text(f"storePathRootDir={target}\nstorePathCommitLog={log}\n")
    source = copy_store(NAME, tmp_path)
    asked = replace(request(source, tmp_path), config=config)
    replay_killed_before_saving(asked, monkeypatch)
    report = replay(asked)
    with mqtool.open(source) as store, mqtool.open(target, config) as made:
        expected, found = (sum(not isinstance(one, Damage) for one in each.messages()) for each in (store, made))
    assert (found, report.replayed, report.already_stored) == (expected, 0, expected)
    assert replay(asked).topics.total() == 0
    (log / f"{0:020d}").write_bytes(bytes((log / f"{0:020d}").stat().st_size))
    with pytest.raises(UsageError, match="is not the one that was written"):
        replay(asked)


def test_messages_that_the_target_refuses_are_listed_after_a_kill_too(tmp_path, monkeypatch):
    """Between, before and behind those that it had stored."""
    source = tmp_path / "lines"
    topics = ["A/b", "A", "A/b", "A", "A", "A/b"]
    source.write_text("".join(json.dumps({"topic": topic, "body": str(at)}) + "\n" for at, topic in enumerate(topics)))
    asked = request(source, tmp_path)
    replay_killed_before_saving(asked, monkeypatch)
    report = replay(asked)
    assert [one[2] for one in contents(tmp_path / "target")] == [b"1", b"3", b"4"]
    assert (report.already_stored, report.refused) == (3, 3)
    assert [position for position, _ in report.reasons] == [1, 3, 6]
