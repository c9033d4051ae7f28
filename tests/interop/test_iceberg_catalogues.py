"""Exports into catalogues of Iceberg: Iceberg's own handlers of REST requests and a Hive metastore are the judges."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mqtool.choices import TableFormat
from mqtool.export.schema import ALL_COLUMNS, ReadRequest
from tests.support import lake
from tests.support.stores import copy_store

SOURCES = Path(__file__).parent / "iceberg"
PROGRAMS = {"rest": "RestCatalogue.java", "hive": "HiveCatalogue.java"}
SCHEMES = {"rest": "http", "hive": "thrift"}
NAME = "rollover-5.5.0"
ENDS = lake.record_ends(NAME)
EXPECTED = lake.expected_rows(NAME, every_class=True, broker="b")

pytestmark = [pytest.mark.interop, pytest.mark.filterwarnings("ignore")]


def class_path(directory: Path, found: Path) -> str:
    """What a catalogue needs, from Maven, which writes it to a file."""
    if not shutil.which("mvn") or not shutil.which("java"):
        pytest.skip("no Java or Maven")
    command = ["mvn", "-q", "-B", "-f", str(directory / "pom.xml"), "dependency:build-classpath"]
    ran = subprocess.run(
        [*command, f"-Dmdep.outputFile={found}"], check=False, capture_output=True, text=True, timeout=240
    )
    if ran.returncode:
        pytest.skip(f"Maven cannot fetch a catalogue: {ran.stdout.strip().splitlines()[0]}")
    return found.read_text()


@pytest.fixture(params=["rest", "hive"])
def catalogue(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Type and address of a catalogue without tables."""
    kind = request.param
    options = ["-XX:TieredStopAtLevel=1", "-Dderby.stream.error.file=/dev/null"]
    needed = class_path(SOURCES / kind, tmp_path / "class-path")
    command = ["java", *options, "-cp", needed, str(SOURCES / kind / PROGRAMS[kind]), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        port = next(line for line in server.stdout if line.strip().isdigit())  # among lines of a log
        yield kind, f"{SCHEMES[kind]}://127.0.0.1:{port.strip()}"
        server.kill()


def test_each_run_becomes_one_commit_of_a_table_in_a_catalogue(tmp_path, monkeypatch, catalogue):
    """Columns added meanwhile and a commit that the catalogue did not learn of, too."""
    loading: Any = pytest.importorskip("pyiceberg.catalog")
    kind, address = catalogue
    monkeypatch.setenv("PYICEBERG_CATALOG__MQTOOL__TYPE", kind)
    monkeypatch.setenv("PYICEBERG_CATALOG__MQTOOL__URI", address)
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
    table = loading.load_catalog("mqtool", type=kind, uri=address).load_table("rocketmq.messages")
    found = [{name: row[name] for name in EXPECTED[0]} for row in table.scan().to_arrow().to_pylist()]
    assert lake.in_log_order(found) == [row | {"body_crc": None} for row in EXPECTED[:40]] + EXPECTED[40:]
    assert len(table.snapshots()) == 3
