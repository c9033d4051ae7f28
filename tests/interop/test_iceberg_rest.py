"""An export into a REST catalogue of Iceberg: Iceberg's own request handlers, in a process of their own, are the judge."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mqtool.choices import TableFormat
from mqtool.export.request import ReadRequest
from mqtool.export.schema import ALL_COLUMNS
from tests.support import lake
from tests.support.stores import copy_store

SOURCES = Path(__file__).parent / "iceberg"
NAME = "rollover-5.5.0"
ENDS = lake.record_ends(NAME)
EXPECTED = lake.expected_rows(NAME, every_class=True, broker="b")

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def class_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Iceberg's core and what it needs, from Maven."""
    if not shutil.which("mvn") or not shutil.which("java"):
        pytest.skip("no Java or Maven")
    path = tmp_path_factory.mktemp("iceberg") / "class-path"
    command = ["mvn", "-q", "-B", "-f", str(SOURCES / "pom.xml"), "dependency:build-classpath"]
    ran = subprocess.run(
        [*command, f"-Dmdep.outputFile={path}"], check=False, capture_output=True, text=True, timeout=240
    )
    if ran.returncode:
        pytest.skip(f"Maven cannot fetch Iceberg: {ran.stdout.strip().splitlines()[0]}")
    return path.read_text()


@pytest.fixture
def catalogue(class_path: str) -> Iterator[str]:
    """The URL of a catalogue without tables."""
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", class_path, str(SOURCES / "RestCatalogue.java")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        server.kill()


def test_each_run_becomes_one_commit_of_a_table_in_a_rest_catalogue(tmp_path, monkeypatch, catalogue):
    """Columns added meanwhile and a commit that the catalogue did not learn of, too."""
    loading: Any = pytest.importorskip("pyiceberg.catalog")
    monkeypatch.setenv("PYICEBERG_CATALOG__MQTOOL__TYPE", "rest")
    monkeypatch.setenv("PYICEBERG_CATALOG__MQTOOL__URI", catalogue)
    store, target = copy_store(NAME, tmp_path), tmp_path / "lake"
    whole = ReadRequest(every_class=True)
    fewer = ReadRequest(every_class=True, columns=tuple(name for name in ALL_COLUMNS if name != "body_crc"))
    runs = [
        (40, fewer, TableFormat.ICEBERG),
        (40, fewer, TableFormat.ICEBERG),
        (90, whole, None),
        (len(ENDS), whole, TableFormat.ICEBERG),
    ]
    for records, read, table in runs:
        lake.grow(NAME, store, ENDS[records - 1])
        lake.run_export(f"b={store}", target, read=read, state=str(tmp_path / "state"), table=table)
    assert not (target / "iceberg.db").exists()
    table = loading.load_catalog("mqtool", type="rest", uri=catalogue).load_table("rocketmq.messages")
    found = [{name: row[name] for name in EXPECTED[0]} for row in table.scan().to_arrow().to_pylist()]
    assert lake.in_log_order(found) == [row | {"body_crc": None} for row in EXPECTED[:40]] + EXPECTED[40:]
    assert len(table.snapshots()) == 3
