"""Finished tasks of a run that ended early are taken over by the next one, if they are what it would make itself."""

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from mqtool.errors import CorruptionError
from mqtool.export.limits import Limits
from mqtool.export.plain import LocalRunner, export
from mqtool.export.run import ExportRequest
from mqtool.export.schema import SALT_VARIABLE, ReadRequest
from mqtool.export.sources import resolve
from mqtool.store import open_store
from mqtool.store.log.cuts import Cuts
from tests.support import lake
from tests.support.builder import StoreBuilder
from tests.support.stores import copy_store

NAME = "rollover-5.5.0"
ENDS = lake.record_ends(NAME)
ALL = ReadRequest(every_class=True)
EXPECTED = lake.expected_rows(NAME, every_class=True, broker="b")
SPLIT = 9_000
ROOT = Path(__file__).resolve().parents[3]

DRIVER = """
import os, signal, sys
from pathlib import Path
from mqtool.export.plain import LocalRunner
from mqtool.export.schema import ReadRequest
from tests.support import lake

store, target, split, after, state = sys.argv[1:]

class Dying(LocalRunner):
    def run(self, tasks, done):
        def count(result):
            done(result)
            if result.number + 1 == int(after):
                os.kill(os.getpid(), signal.SIGKILL)

        super().run(tasks, count)

lake.LocalRunner = Dying
wanted = {"state": state} if state else {}
lake.run_export(store, Path(target), read=ReadRequest(every_class=True), split_bytes=int(split), **wanted)
"""


class Interrupted(LocalRunner):
    """A runner that fails with an error once a number of tasks are finished."""

    def __init__(self, after, error=KeyboardInterrupt):
        super().__init__(1)
        self.after, self.error = after, error

    def run(self, tasks, done):
        super().run(tasks[: self.after], done)
        raise self.error


class Lake:
    """An export of one store, run after run."""

    def __init__(self, tmp_path):
        self.store, self.target, self.state = copy_store(NAME, tmp_path), tmp_path / "lake", str(tmp_path / "state")

    def run(self, runner=None, **wanted):
        wanted = {"read": ALL, "state": self.state, "split_bytes": SPLIT, **wanted}
        return export(
            ExportRequest(tuple(resolve([f"b={self.store}"])), str(self.target), **wanted), runner or LocalRunner(1)
        )

    def interrupt(self, after, error=KeyboardInterrupt, **wanted):
        """Runs until so many tasks are finished; returns what the error says."""
        with pytest.raises(error) as raised:
            self.run(Interrupted(after, error), **wanted)
        return getattr(raised.value, "__notes__", [])

    def kill(self, after, state):
        """A process that is killed when so many tasks are finished."""
        words = [f"b={self.store}", str(self.target), str(SPLIT), str(after), state]
        command, ours = [sys.executable, "-c", DRIVER, *words], {"PYTHONPATH": str(ROOT)}
        killed = subprocess.run(command, cwd=ROOT, env=os.environ | ours, check=False)
        assert killed.returncode == -signal.SIGKILL

    def manifests(self):
        return sorted(self.target.glob("_mqtool/staging-*/*/task.json"))

    def staged(self):
        return sorted(path.name for path in (self.target / "_mqtool").glob("staging-*"))

    def rows(self):
        return lake.in_log_order(lake.rows(self.target))


@pytest.fixture
def interrupted(tmp_path):
    return Lake(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("with_state", [True, False])
def test_after_a_kill_only_tasks_that_were_not_finished_run_again(interrupted, tmp_path, with_state):
    state = interrupted.state if with_state else None
    interrupted.kill(5, state or "")
    assert len(interrupted.manifests()) == 5
    result = interrupted.run(state=state)
    assert (result.taken_over, result.tasks) == (5, len({path.name[:19] for path in lake.files(interrupted.target)}))
    lake.run_export(f"b={interrupted.store}", tmp_path / "whole", read=ALL, split_bytes=SPLIT)
    assert {path.name: path.read_bytes() for path in lake.files(interrupted.target)} == {
        path.name: path.read_bytes() for path in lake.files(tmp_path / "whole")
    }
    assert interrupted.rows() == EXPECTED
    assert interrupted.staged() == []


def test_a_run_that_is_interrupted_again_and_again_gets_on(interrupted):
    for after in (3, 6, 9):
        (note,) = interrupted.interrupt(after)
        assert note.startswith(f"{after} of ")
        assert note.endswith(" tasks are kept; run the same command again")
    assert interrupted.run().taken_over == 9
    assert interrupted.rows() == EXPECTED


def test_a_log_that_has_grown_is_cut_where_it_was_cut(interrupted):
    """Only the range at its end is another one."""
    lake.grow(NAME, interrupted.store, ENDS[89])
    before = interrupted.interrupt(100)
    count = len(interrupted.manifests())
    assert before == [f"{count} of {count} tasks are kept; run the same command again"]
    lake.grow(NAME, interrupted.store, ENDS[-1])
    assert interrupted.run().taken_over == count - 1
    assert interrupted.rows() == EXPECTED


def test_a_run_with_a_limit_is_taken_over_whole(interrupted):
    lake.grow(NAME, interrupted.store, ENDS[89])
    interrupted.interrupt(100, limits=Limits(max_bytes=40_000))
    count = len(interrupted.manifests())
    lake.grow(NAME, interrupted.store, ENDS[-1])
    result = interrupted.run(limits=Limits(max_bytes=40_000))
    assert result.taken_over == result.tasks == count > 2


def flipped(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    "change",
    [
        flipped,
        Path.unlink,
        lambda path: os.truncate(path, 100),
        lambda path: (path.parents[1] / "task.json").write_text("{}"),
    ],
    ids=["a byte differs", "missing", "cut", "manifest"],
)
def test_files_that_are_not_those_that_were_written_are_written_again(interrupted, change):
    interrupted.interrupt(4)
    change(interrupted.manifests()[1].parent / "messages" / "part-00000001-00001-0000.parquet")
    assert interrupted.run().taken_over == 3
    assert interrupted.rows() == EXPECTED
    assert interrupted.staged() == []


@pytest.mark.parametrize("changed", [{"read": ReadRequest()}, {"split_bytes": 13_000}], ids=["request", "split"])
def test_tasks_of_another_request_are_removed(interrupted, changed):
    interrupted.interrupt(4)
    result = interrupted.run(**changed)
    assert result.taken_over == 0
    assert interrupted.staged() == []


def test_tasks_of_a_log_that_was_written_anew_are_removed(interrupted):
    builders = []
    for body in (b"a" * 300, b"b" * 300):
        builder = StoreBuilder(segment_size=4096)
        for number in range(60):
            builder.put(body if number > 30 else b"same" * 75)
        builders.append(builder)
    interrupted.store = builders[0].write(interrupted.target.parent / "built")
    interrupted.interrupt(100, split_bytes=4096)
    count = len(interrupted.manifests())
    for base, data in builders[1].segments.items():
        (interrupted.store / "commitlog" / f"{base:020}").write_bytes(data)
    same = builders[0].puts[31].physical_offset // 4096
    result = interrupted.run(split_bytes=4096)
    assert result.taken_over == same < count
    assert Counter(row["body"][:1] for row in interrupted.rows()) == {b"s": 31, b"b": 29}


def test_values_that_are_redacted_with_a_salt_of_one_run_are_not_taken_over(interrupted, monkeypatch):
    monkeypatch.delenv(SALT_VARIABLE, raising=False)
    wanted = {"read": ReadRequest(every_class=True, redact=frozenset({"keys"}), salt=b"one")}
    assert interrupted.interrupt(4, **wanted) == []
    assert interrupted.staged() == []
    monkeypatch.setenv(SALT_VARIABLE, "one")
    assert len(interrupted.interrupt(4, **wanted)) == 1
    assert interrupted.run(**wanted).taken_over == 4


def test_damage_that_a_task_found_fails_the_run_that_must_not_tolerate_it(interrupted):
    at = EXPECTED[5]["physical_offset"] + 88
    segment = max(path for path in (interrupted.store / "commitlog").iterdir() if int(path.name) <= at)
    data = bytearray(segment.read_bytes())
    data[at - int(segment.name)] ^= 1
    segment.write_bytes(data)
    interrupted.interrupt(8)
    with pytest.raises(CorruptionError):
        interrupted.run(read=ReadRequest(every_class=True, fail_fast=True))
    assert len(interrupted.manifests()) == 7
    assert interrupted.run().taken_over == 7


def test_files_are_named_after_their_place_in_the_plan_that_publishes_them(interrupted, tmp_path):
    other = StoreBuilder(segment_size=1 << 16)
    for _ in range(10):
        other.put(b"x" * 500)
    wanted = {"read": ALL, "state": interrupted.state, "split_bytes": 10_000}
    before, after = tmp_path / "before", tmp_path / "after"
    other.write(before)
    for _ in range(40):
        other.put(b"x" * 500)
    other.write(after)
    (tmp_path / "a").symlink_to(before)
    sources = resolve([f"a={tmp_path / 'a'}", f"b={interrupted.store}"])
    request = ExportRequest(tuple(sources), str(interrupted.target), **wanted)
    with pytest.raises(KeyboardInterrupt):
        export(request, Interrupted(100))
    count = len(interrupted.manifests())
    (tmp_path / "a").unlink()
    (tmp_path / "a").symlink_to(after)
    result = export(request, LocalRunner(1))
    assert result.taken_over >= count - 1
    assert result.tasks > count
    rows = Counter(row["broker"] for row in lake.rows(interrupted.target))
    assert rows == {"a": 50, "b": len(EXPECTED)}


def test_a_cut_is_at_the_first_record_whatever_the_queues_are(tmp_path):
    builder = StoreBuilder(segment_size=1 << 16)
    for number in range(100):
        builder.put(b"x" * 200, queue_id=number % 40)
    path = builder.write(tmp_path / "store")
    with open_store(path) as store:
        cuts = Cuts(store)
        starts = [put.physical_offset for put in builder.puts]
        for target in range(1, builder.end, 77):
            expected = next((start for start in starts if start >= target), None)
            assert cuts.next_at(target, builder.end) == expected
