"""A store whose CommitLog is missing: no command takes it for one without messages."""

import shutil

import pytest

from mqtool.cli.app import run
from mqtool.cli.exits import ExitCode
from tests.support.stores import copy_store


@pytest.fixture
def root(tmp_path):
    root = copy_store("txbits-4.9.7", tmp_path)
    shutil.rmtree(root / "commitlog")
    return root


@pytest.mark.parametrize("words", [["dump"], ["pending"], ["find", "--key", "k0"], ["get", "0"], ["story", "k0"]])
def test_what_it_contains_is_unknown(words, root, capsys):
    command, *options = words
    assert run([command, str(root), *options]) == ExitCode.NO
    assert "expected a CommitLog, found no segment" in capsys.readouterr().err


def test_nothing_is_rebuilt_from_it(root, tmp_path, capsys):
    assert run(["rebuild", "all", str(root), "--output", str(tmp_path / "out")]) == ExitCode.REFUSED
    assert "expected a CommitLog, found no segment" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_plan_is_refused(root, tmp_path, capsys):
    assert run(["plan", "rebuild", "all", str(root), "-o", str(tmp_path / "plan")]) == ExitCode.REFUSED
    assert "restore it from a replica or a backup" in capsys.readouterr().err
