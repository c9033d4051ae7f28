"""The files are read by the tools that people have, and give each of them the broker's messages."""

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from mqtool.export.parquet import WriteOptions
from tests.support import lake

duckdb = pytest.importorskip("duckdb")
polars = pytest.importorskip("polars")

NAME = "orders-5.5.0"
EXPECTED = lake.expected_rows(NAME, every_class=False, broker="b")
LAYOUTS: list[tuple[str, ...]] = [(), ("topic",), ("topic", "date"), ("date", "hour")]


@pytest.fixture(scope="module", params=LAYOUTS, ids=lambda layout: "-".join(layout) or "flat")
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("readers")
    return lake.exported(NAME, where, write=WriteOptions(request.param))


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    properties = row["properties"]
    if isinstance(properties, list):  # of pairs, as {"key": …, "value": …} or (…, …)
        properties = [tuple(pair.values()) if isinstance(pair, dict) else tuple(pair) for pair in properties]
    elif isinstance(properties, dict):
        properties = list(properties.items())
    moments = tuple(row[name].timestamp() for name in ("born_timestamp", "store_timestamp"))
    plain = ("topic", "queue_id", "queue_offset", "physical_offset", "body", "tags", "unique_key", "record_class")
    return (*(row[name] for name in plain), tuple(row["keys"]), tuple(sorted(properties)), *moments)


KEYS = Counter(map(key, EXPECTED))


def test_pyarrow(target: Path) -> None:
    found = ds.dataset(target / "messages", format="parquet", partitioning="hive").to_table()
    assert Counter(map(key, found.to_pylist())) == KEYS


def test_duckdb(target: Path) -> None:
    found = duckdb.sql(f"SELECT * FROM read_parquet('{target}/messages/**/*.parquet', hive_partitioning = true)")
    assert Counter(map(key, found.to_arrow_table().to_pylist())) == KEYS


def test_duckdb_counts_by_topic(target: Path) -> None:
    found = duckdb.sql(f"SELECT topic, count(*) FROM '{target}/messages/**/*.parquet' GROUP BY topic").fetchall()
    assert dict(found) == Counter(row["topic"] for row in EXPECTED)


def test_polars(target: Path) -> None:
    found = polars.scan_parquet(f"{target}/messages/**/*.parquet", hive_partitioning=False).collect()
    assert Counter(map(key, found.to_dicts())) == KEYS


def test_every_reader_finds_the_empty_tables(target: Path) -> None:
    for name in ("damage", "rejected_values"):
        assert duckdb.sql(f"SELECT count(*) FROM '{target}/{name}/*.parquet'").fetchall() == [(0,)]
        assert len(polars.read_parquet(f"{target}/{name}/*.parquet")) == 0
        assert lake.table(target, name).num_rows == 0


def test_a_reader_of_the_whole_tree_does_not_meet_what_is_not_data(target: Path) -> None:
    found = duckdb.sql(f"SELECT count(*) FROM '{target}/messages/**/*.parquet'").fetchall()
    assert found == [(len(EXPECTED),)]
    assert [path.name for path in target.rglob("*.parquet") if "_mqtool" in path.parts] == []
