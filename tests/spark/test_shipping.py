"""The page on clusters, word by word: a wheel travels with the job to executors that have no mqtool."""

import re
import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from mqtool.errors import UnavailableError
from mqtool.spark.session import require_spark
from tests.support import lake
from tests.support.spark_cluster import ROOT, environment_of, python_without_mqtool, spark_cluster, spark_home
from tests.support.stores import store_fixture

PAGE = (ROOT / "docs" / "spark-cluster.md").read_text()
NAME = "orders-5.5.0"


def command(beginning: str) -> list[str]:
    """The words of a command of the page."""
    (line,) = re.findall(rf"^({beginning} .*)$", PAGE, re.MULTILINE)
    return shlex.split(line)


def wheel_as_zip(directory: Path) -> None:
    """Builds the wheel with the installed Cython, and gives it the name on the page."""
    command_line = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", directory / "dist"]
    subprocess.run([*command_line, ROOT], check=True)
    _, pattern, name = command("cp")
    (wheel,) = directory.glob(pattern)
    shutil.copy(wheel, directory / name)


@pytest.mark.slow
@pytest.mark.night
@pytest.mark.timeout(300)
@pytest.mark.skipif(find_spec("Cython") is None, reason="Cython builds the wheel and is not installed")
def test_a_wheel_travels_with_a_job_to_executors_without_mqtool(tmp_path):
    try:
        require_spark()
    except UnavailableError as reason:
        pytest.skip(str(reason))
    python = python_without_mqtool(tmp_path / "venv")
    environment = environment_of(python)
    alone = [str(python), "-c", "import numpy, pyarrow, pyspark; import mqtool"]
    refused = subprocess.run(alone, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert refused.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'mqtool'"
    wheel_as_zip(tmp_path)
    (job,) = re.findall(r"`job.py`:\n\n```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "job.py").write_text(job)
    store = f"b={store_fixture(NAME).directory}"
    with spark_cluster(tmp_path, 1, python) as cluster:
        program, *given = command("spark-submit")
        given = [{"spark://HOST:7077": cluster.master}.get(word, word) for word in given]
        given[given.index("job.py") + 1 :] = [store, str(tmp_path / "lake")]
        submit = [str(spark_home() / "bin" / program), *given]
        ran = subprocess.run(submit, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    plain = lake.run_export(store, tmp_path / "plain", state=str(tmp_path / "plain.state"))
    assert ran.stdout.splitlines()[-1] == str(plain.manifest.totals["rows"])
    expected = {path.name: path.read_bytes() for path in lake.files(tmp_path / "plain")}
    assert {path.name: path.read_bytes() for path in lake.files(tmp_path / "lake")} == expected
