"""The examples of docs/spark-bodies.md decode bodies that are written here byte by byte."""

import functools
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from tests.support.builder import StoreBuilder

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "spark-bodies.md").read_text("utf-8")
CACHE = Path.home() / ".cache" / "mqtool" / "spark"
ORDER = 'syntax = "proto3"; message Order { int64 id = 1; string item = 2; }'
BODIES = {
    "JsonOrders": (b'{"id": 42, "item": "table"}', b"no JSON"),
    "AvroOrders": (b"\x54\x0atable", b"\xff"),
    "ProtobufOrders": (b"\x08\x2a\x12\x05table",),
}


def example(number: int) -> str:
    return re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[number]


@pytest.fixture
def run(spark, tmp_path, capsys):
    """Runs an example of the page; returns the rows that it shows."""
    builder = StoreBuilder()
    for topic, bodies in BODIES.items():
        for body in bodies:
            builder.put(body, topic=topic)
    given = {"spark": spark, "store": str(builder.write(tmp_path / "store"))}

    def ran(number, **more):
        exec(compile(example(number), "docs/spark-bodies.md", "exec"), given | more)
        return [re.findall(r"[^|\s]+", line) for line in capsys.readouterr().out.splitlines() if line.startswith("|")]

    return ran


@functools.cache
def jar_of(package: str) -> str:
    """The file of a package of Spark, from Maven; of the release of pyspark, or of the one before where Maven has none."""
    if not shutil.which("mvn"):
        pytest.skip("no mvn, which fetches the package")
    for version in (pyspark.__version__, "4.2.0"):
        name = f"{package}_2.13"
        copy = f"-Dartifact=org.apache.spark:{name}:{version}"
        command = ["mvn", "-q", "-B", "dependency:copy", copy, f"-DoutputDirectory={CACHE}"]
        file = CACHE / f"{name}-{version}.jar"
        if file.exists() or not subprocess.run(command, capture_output=True, timeout=300, check=False).returncode:
            return str(file)
    pytest.skip(f"Maven has no {package}_2.13 of Spark {pyspark.__version__} or 4.2.0")


SHOWN = [["queue_offset", "id", "item"], ["0", "42", "table"]]


def test_json_is_decoded_by_spark(run):
    assert run(0) == SHOWN


@pytest.mark.night
@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")
def test_protobuf_is_decoded_by_its_own_class(run, spark, tmp_path, monkeypatch):
    protoc = pytest.importorskip("grpc_tools.protoc")
    (tmp_path / "order.proto").write_text(ORDER)
    assert protoc.main(["protoc", f"-I{tmp_path}", f"--python_out={tmp_path}", "order.proto"]) == 0
    monkeypatch.syspath_prepend(tmp_path)
    spark.sparkContext.addPyFile(str(tmp_path / "order_pb2.py"))
    try:
        assert run(3) == SHOWN
    finally:
        sys.modules.pop("order_pb2", None)


@pytest.mark.night
def test_avro_is_decoded_by_the_package_of_spark(run, spark):
    spark.sql(f"ADD JAR '{jar_of('spark-avro')}'")
    assert run(1) == SHOWN


@pytest.mark.night
def test_protobuf_is_decoded_by_the_package_of_spark(run, spark, tmp_path):
    protoc = pytest.importorskip("grpc_tools.protoc")
    spark.sql(f"ADD JAR '{jar_of('spark-protobuf')}'")
    (tmp_path / "order.proto").write_text(ORDER)
    assert protoc.main(["protoc", f"-I{tmp_path}", f"-o{tmp_path}/order.desc", "order.proto"]) == 0
    assert run(2, descriptor=str(tmp_path / "order.desc")) == SHOWN
