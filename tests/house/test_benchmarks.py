"""Benchmarks say what they take, and make nothing of words that they do not know."""

import subprocess
import sys

import pytest

from tests.house.modules import ROOT

SCRIPTS = sorted(path for path in (ROOT / "benchmarks").glob("*.py") if "__main__" in path.read_text("utf-8"))


def run(script, *arguments, cwd):
    return subprocess.run([sys.executable, script, *arguments], cwd=cwd, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_help_is_printed_and_nothing_is_made(tmp_path, script):
    if "pyspark" in script.read_text("utf-8"):
        pytest.importorskip("pyspark")
    result = run(script, "--help", cwd=tmp_path)
    assert (result.returncode, result.stdout[:6]) == (0, "usage:"), result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["engine_append", "engine_read", "engine_sync"])
@pytest.mark.parametrize("word", ["siz=1", "size", "--size"])
def test_a_setting_of_no_known_name_is_refused(tmp_path, name, word):
    result = run(ROOT / "benchmarks" / f"{name}.py", "new", word, cwd=tmp_path)
    assert (result.returncode, word in result.stderr) == (2, True)
    assert list(tmp_path.iterdir()) == []
