"""The script of docs/lake.md runs from beginning to end and shows what the page says."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mqtool.errors import UnavailableError
from mqtool.spark.session import require_spark
from tests.support import lake

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.night
def test_the_script_runs_and_counts_the_brokers_messages(tmp_path):
    pytest.importorskip("duckdb")
    pytest.importorskip("polars")
    store = ROOT / "fixtures" / "orders-5.5.0" / "store"
    command = [sys.executable, "docs/lake.py", str(store), str(tmp_path)]
    ran = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"NO_COLOR": "1"}, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    expected = lake.expected_rows("orders-5.5.0", every_class=False, broker="broker-a")
    assert lake.in_log_order(lake.rows(tmp_path / "lake" / "python")) == expected
    assert f"{len(expected)} messages\n" in ran.stdout
    try:
        require_spark()
    except UnavailableError:
        pytest.skip("the cells of Spark were left out")
    assert f"{len(expected)} messages by the stream\n" in ran.stdout
