"""Whoever waits while the loops are compiled is told so; nobody who gets them from the cache is."""

import os
import subprocess
import sys

import pytest

from tests.house.modules import ROOT

pytest.importorskip("numba")

COMPILE = """
from mqtool.kernels import compiling
@compiling.compiled(compiling.types.int64, compiling.types.int64)
def one_more(number):
    return number + 1
print(one_more(1))
"""


@pytest.mark.slow
def test_only_a_run_that_compiles_says_so(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(COMPILE)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}

    def run() -> tuple[str, str]:
        command = [sys.executable, str(script)]
        result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return result.stdout, result.stderr

    first, second = run(), run()
    assert first == ("2\n", "mqtool: compiling loops for large logs, once on this machine; this takes some seconds\n")
    assert second == ("2\n", "")
