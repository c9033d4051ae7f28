"""A change that is killed at any call is finished by the same call again, or taken back by undo, byte for byte."""

import contextlib
import errno
import os
import random
import shutil

import pytest

import mqtool
from mqtool.errors import MqtoolError
from mqtool.repair import RebuildIndex, RebuildQueues, SetAside, Truncate, apply, discard_undo, make_plan, undo
from mqtool.repair.paths import BARRIER, HOME
from tests.support.engine_faults import fast_directory, remove
from tests.support.stores import copy_store, tree_digest
from tests.unit.repair.faults import BrokenFiles, DyingFiles, FailingFiles, Killed, LossyFiles

STEP = int(os.environ.get("MQTOOL_EVERY_KILL", "23"))
"""Every 23rd call; MQTOOL_EVERY_KILL=1: all of them."""


def contents(root):
    """Bytes by name, without what is ours."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and HOME not in path.parts
    }


def exact(root):
    """Digest of everything below the root; only its own time, lost if even the journal was not begun, is left out."""
    return {path.name: tree_digest(path) for path in root.iterdir()}


class Case:
    """A store, a plan for it, and what it is like before and after."""

    def __init__(self, name):
        self.directory = fast_directory()
        self.root = copy_store("rollover-5.5.0", self.directory)
        self.plan = make_plan(self.root, CHANGES[name](self.root))
        self.before, self.digest = contents(self.root), exact(self.root)
        whole = tree_digest(self.root)
        apply(self.plan, backup_acknowledged=True, verify_after=False)
        self.after = contents(self.root)
        undo(self.root)
        assert tree_digest(self.root) == whole
        assert self.before != self.after

    def apply(self, files=None):
        return apply(self.plan, backup_acknowledged=True, verify_after=False, files=files)

    def calls(self, action):
        """Counts the calls of an action; the store is as before afterwards."""
        files = DyingFiles()
        action(files)
        if (self.root / HOME).exists():
            undo(self.root)
        return files.calls


def mixed(root):
    """Creates, replaces and sets aside."""
    shutil.rmtree(root / "consumequeue" / "Roll" / "0")
    for path in sorted((root / "index").iterdir())[:1]:
        path.write_bytes(bytes(path.stat().st_size))
    return [RebuildQueues(("Roll",)), RebuildIndex(), SetAside(("checkpoint",))]


def cut(root):
    """Replaces and sets aside."""
    with mqtool.open(root) as store:
        return [Truncate(store.commit_log.segments[-3].base)]


CHANGES = {"mixed": mixed, "cut": cut}


@pytest.fixture(params=CHANGES)
def case(request):
    made = Case(request.param)
    yield made
    remove(made.directory)


def killed(action, files):
    """Lets an action die; False if it came to its end."""
    try:
        action(files)
    except Killed:
        return True
    return False


@pytest.mark.slow
def test_apply_again_finishes_what_was_killed_at_any_call(case):
    total = case.calls(case.apply)
    for number in range(0, total, STEP):
        assert killed(case.apply, DyingFiles(number)), number
        assert (case.root / "commitlog" / BARRIER).exists() or contents(case.root) in (case.before, case.after), number
        case.apply()
        assert contents(case.root) == case.after, number
        undo(case.root)
        assert exact(case.root) == case.digest, number
    assert not killed(case.apply, DyingFiles(total))


@pytest.mark.slow
def test_undo_takes_back_what_was_killed_at_any_call(case):
    for number in range(1, case.calls(case.apply), STEP):
        assert killed(case.apply, DyingFiles(number)), number
        if (case.root / HOME).exists():
            undo(case.root)
        assert exact(case.root) == case.digest, number


@pytest.mark.slow
def test_undo_again_finishes_an_undo_that_was_killed_at_any_call(case):
    case.apply()
    files = DyingFiles()
    undo(case.root, files=files)
    for number in range(0, files.calls - 1, STEP):
        case.apply()
        assert killed(lambda dying: undo(case.root, files=dying), DyingFiles(number)), number
        assert (case.root / "commitlog" / BARRIER).exists() or contents(case.root) in (case.before, case.after), number
        if (case.root / HOME).exists():
            undo(case.root)
        assert contents(case.root) == case.before, number
        assert not (case.root / HOME).exists()


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["apply", "undo"])
def test_without_hard_links_a_killed_change_is_finished_or_undone_too(case, ending, monkeypatch):
    """Old files are moved to the quarantine then, and for a moment neither the old nor the new one is in place."""

    def refuse(source, _target, **_):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM), str(source))

    monkeypatch.setattr("mqtool.repair.files.os.link", refuse)
    for number in range(1, case.calls(case.apply), STEP):
        assert killed(case.apply, DyingFiles(number)), number
        if ending == "apply":
            case.apply()
            assert contents(case.root) == case.after, number
        if (case.root / HOME).exists():
            undo(case.root)
        assert exact(case.root) == case.digest, number


@pytest.mark.slow
def test_undo_takes_back_what_stopped_when_the_disk_broke_at_any_call(case):
    gates = set()
    for number in range(1, case.calls(case.apply), STEP):
        with pytest.raises((OSError, MqtoolError)) as caught:
            case.apply(BrokenFiles(number))
        gates.add(getattr(caught.value, "gate", None))
        if (case.root / HOME).exists():
            undo(case.root)
        assert exact(case.root) == case.digest, number
    assert gates == {None, "half-way"}


@pytest.mark.slow
def test_finalize_again_finishes_a_finalize_that_was_killed_at_any_call(tmp_path):
    root = copy_store("rollover-5.5.0", tmp_path)
    plan = make_plan(root, cut(root))
    number, again = 0, True
    shutil.copytree(root, tmp_path / "first")
    while again:
        apply(plan, backup_acknowledged=True, verify_after=False)
        after = contents(root)
        again = killed(lambda files: discard_undo(root, files=files), DyingFiles(number))
        if (root / HOME).exists():
            discard_undo(root)
        assert contents(root) == after, number
        assert not (root / HOME).exists()
        for path in root.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.copytree(tmp_path / "first", root, dirs_exist_ok=True)
        number += STEP
    assert number > STEP


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("ending", ["apply", "undo"])
def test_after_a_power_cut_at_any_call_the_change_is_finished_or_taken_back(case, ending):
    chance = random.Random(8)
    for number in range(1, case.calls(case.apply), STEP):
        files = LossyFiles(case.root, number)
        assert killed(case.apply, files), number
        files.power_cut(chance)
        if ending == "apply" or not (case.root / HOME).exists():
            case.apply()
            assert contents(case.root) == case.after, number
        undo(case.root)
        assert contents(case.root) == case.before, number
        assert not (case.root / HOME).exists(), number


@pytest.mark.slow
def test_after_a_power_cut_during_undo_undo_finishes(case):
    chance = random.Random(9)
    case.apply()
    files = DyingFiles()
    undo(case.root, files=files)
    for number in range(1, files.calls, STEP):
        case.apply()
        lossy = LossyFiles(case.root, number)
        killed(lambda dying: undo(case.root, files=dying), lossy)
        lossy.power_cut(chance)
        if (case.root / HOME).exists():
            undo(case.root)
        assert contents(case.root) == case.before, number


@pytest.mark.slow
def test_no_space_left_at_any_call_changes_nothing(case):
    """Removing, renaming and syncing need no space; all else may find none."""
    names = ("append", "keep", "make_directory", "write_file")
    number = 0
    while True:
        files = FailingFiles(number, names=names)
        with contextlib.suppress(OSError, MqtoolError):
            case.apply(files)
        if files.failed is None:
            break
        assert exact(case.root) == case.digest, files.failed
        number += 1 + STEP // 4
    assert number > 10
    undo(case.root)
