"""Starting up is cheap: no numpy, Arrow, Spark or tables before a command needs them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.modules import ROOT
from tests.support.environment import without_coverage

HEAVY = (
    "pydantic",
    "numpy",
    "pyarrow",
    "pyspark",
    "construct",
    "pandas",
    "polars",
    "rich.table",
    "asyncio",
    "ssl",
    "multiprocessing",
)


def loaded_by(*arguments: str) -> set[str]:
    """Names of all modules that this call of the interpreter imports, as it tells them itself."""
    environment = without_coverage() | {"NO_COLOR": "1", "COLUMNS": "100"}
    command = [sys.executable, "-X", "importtime", *arguments]
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return {line.rpartition("|")[2].strip() for line in result.stderr.splitlines() if line.startswith("import time:")}


CALLS = [
    ("-c", "import mqtool"),
    ("-m", "mqtool", "--help"),
    ("-m", "mqtool", "--version"),
    ("-m", "mqtool", "serve", "--help"),
    ("-c", "from mqtool.cli.app import LazyCommands; [*LazyCommands().values()]"),  # `--help` of every command
]


@pytest.mark.parametrize("arguments", CALLS, ids=" ".join)
def test_no_heavy_library_is_loaded_by(arguments):
    loaded = loaded_by(*arguments)
    assert "mqtool" in loaded
    assert loaded.intersection(HEAVY) == set()


def test_help_loads_no_value_class():
    """msgspec takes a tenth of the time of `mqtool --help`: the few classes that it needs are named tuples."""
    assert loaded_by("-m", "mqtool", "--help").intersection(("msgspec", "mqtool.values")) == set()


def test_verify_of_a_clean_store_loads_nothing_for_repairs():
    loaded = loaded_by("-m", "mqtool", "verify", "fixtures/ha-5.5.0/store-master", "--jobs", "1")
    assert "mqtool.verify.store" in loaded
    strays = {name for name in loaded if name.startswith(("mqtool.repair", "mqtool.engine", "mqtool.ingest"))}
    assert strays | loaded.intersection(("pyarrow", "numba", "ctypes.util", "pydantic")) == set()


def test_info_loads_nothing_to_check_or_for_stores_of_other_systems():
    loaded = loaded_by("-m", "mqtool", "info", "fixtures/ha-5.5.0/store-master", "--format", "json")
    assert "mqtool.store.store" in loaded
    needed = {"mqtool.siblings", "mqtool.siblings.registry"}
    strays = {name for name in loaded if name.startswith(("mqtool.verify", "mqtool.recovery", "mqtool.cli.siblings"))}
    assert strays | {name for name in loaded if name.startswith("mqtool.siblings")} - needed == set()


@pytest.mark.slow
@pytest.mark.parametrize("words", [["dump", "--format", "jsonl"], ["export", "--output"]], ids=" ".join)
def test_pyarrow_loads_neither_pandas_nor_dateutil(words, tmp_path):
    store, more = "fixtures/ha-5.5.0/store-master", [str(tmp_path / "out")] if words[-1] == "--output" else []
    loaded = loaded_by("-m", "mqtool", words[0], store, *words[1:], *more)
    assert "pyarrow.lib" in loaded
    assert loaded.intersection(("pandas._libs", "dateutil._common")) == set()


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="counts threads in /proc")
def test_numpy_starts_no_threads():
    code = """
import os, sys
from mqtool.cli.app import main
sys.argv = ["mqtool", "info", "fixtures/ha-5.5.0/store-master", "--format", "json"]
try:
    main()
except SystemExit:
    assert "numpy" in sys.modules
    print(len(os.listdir("/proc/self/task")), file=sys.stderr)
"""
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert result.stderr == "1\n"
