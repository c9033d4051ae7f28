"""`mqtool salvage` and `mqtool backup` killed with SIGKILL: what they left misleads nobody, and the next run ends as the first would have."""

import signal
import subprocess
import sys

import pytest

from mqtool.cli.app import run as cli
from mqtool.repair.backup import restore, snapshots
from mqtool.repair.backup.snapshots import load
from tests.support.damage import damage_case
from tests.support.stores import FIXTURES, copy_store, tree_digest

POINTS = 4
"""Of each command, over all changes that it makes to files; the first and the last are among them."""


def in_process(directory, step, *words):
    """Runs a command of its own process, and returns how it ended and how many changes it made."""
    command = [sys.executable, "-m", "tests.support.dying", str(directory), str(step), *map(str, words)]
    done = subprocess.run(command, cwd=FIXTURES.parent, capture_output=True, check=False)
    return done.returncode, int(done.stderr.split()[-1]) if step == 0 else 0


def points(changes):
    return sorted({1 + number * (changes - 1) // (POINTS - 1) for number in range(POINTS)})


def contents(root):
    """Bytes by name; a lock is nobody's content."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes() if path.is_file() else None
        for path in root.rglob("*")
        if path.name != "lock"
    }


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    return damage_case("tail-page-hole@5.5.0-crash", tmp_path_factory.mktemp("damaged"))


@pytest.mark.slow
def test_a_salvage_that_was_killed_is_run_again_and_ends_as_an_undisturbed_one(damaged, in_memory):
    before = tree_digest(damaged)
    whole = in_memory / "whole"
    whole.mkdir()
    code, changes = in_process(whole, 0, "salvage", damaged, "-o", whole / "new")
    assert (code, changes > 10 * POINTS) == (1, True)  # 1: messages are lost
    expected = contents(whole / "new")
    for point in points(changes):
        work = in_memory / str(point)
        work.mkdir()
        assert in_process(work, point, "salvage", damaged, "-o", work / "new")[0] == -signal.SIGKILL
        if (work / "new").exists():  # it appears when it is whole
            assert contents(work / "new") == expected
        else:
            assert cli(["salvage", str(damaged), "-o", str(work / "new")]) == 1
            assert contents(work / "new") == expected
        assert tree_digest(damaged) == before
    assert sorted(path.name for path in (in_memory / str(points(changes)[-2])).iterdir()) == ["new"]


@pytest.mark.slow
def test_a_backup_that_was_killed_is_run_again_and_ends_as_an_undisturbed_one(in_memory):
    root = copy_store("orders-5.5.0", in_memory)
    before = tree_digest(root)
    whole = in_memory / "whole"
    code, changes = in_process(whole, 0, "backup", root, "-o", whole)
    assert (code, changes > 10 * POINTS) == (0, True)
    for point in points(changes):
        work = in_memory / str(point)
        assert in_process(work, point, "backup", root, "-o", work)[0] == -signal.SIGKILL
        for name in snapshots(work) if (work / "snapshots").is_dir() else []:
            restore(work, None, name)  # what looks like a snapshot is one
        assert cli(["backup", str(root), "-o", str(work)]) == 0
        assert load(work).files == load(whole).files
        assert contents(work / "pieces") == contents(whole / "pieces")
        assert list(work.rglob("*.incomplete")) == []
        restore(work, work / "again")
        assert contents(work / "again") == contents(root)
        assert tree_digest(root) == before
