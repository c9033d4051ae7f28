"""The benchmarks of serve in small: every job runs, and a mixed load loses nothing and fails nowhere."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
JOBS = ["send-1", "send-8", "oneway", "batch-1", "pull"]


def lines(script: str, *options: str) -> list[dict[str, Any]]:
    """What a benchmark prints; it must succeed."""
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / script, *options],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.long
@pytest.mark.slow
def test_each_job_of_the_benchmark_stores_and_finds_its_messages():
    ready, *found = lines("serve.py", "--seconds", "0.4", "--jobs", ",".join(JOBS))
    assert ready["job"] == "ready"
    assert [line["job"] for line in found] == JOBS
    assert all(line["messages"] > 0 for line in found)


@pytest.mark.slow
def test_a_mixed_load_is_stored_and_consumed_whole_and_without_an_error():
    *_, verdict = lines("serve_soak.py", "--minutes", "0.03", "--probe", "1", "--size", "100")
    assert (verdict["whole"], verdict["errors"]) == (True, {})
    assert verdict["sent"] == verdict["stored"] > 0
