"""Linter and type checker have nothing to say."""

import subprocess
import sys

import pytest

from tests.house.modules import ROOT


@pytest.mark.parametrize(
    "arguments",
    [("ruff", "check", "."), ("ruff", "format", "--check", "."), ("mypy",), ("mypy", "tests/support")],
    ids=" ".join,
)
def test_a_tool_finds_nothing(arguments):
    result = subprocess.run([sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
