"""Rows where a file cannot be read, and where a store refuses what the validator allowed."""

import io
import json
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mqtool
from mqtool.engine import StoreOptions, open_store
from mqtool.engine.statuses import PutStatus
from mqtool.errors import StoreError
from mqtool.ingest import bulk_ingest, row_source
from mqtool.ingest.bulk_ingest import Row
from mqtool.ingest.row_source import rows_of_lines, rows_of_parquet

SMALL = {"commit_log_file_size": 1 << 16, "consume_queue_file_size": 2000}


def test_a_parquet_file_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "part-0.parquet").mkdir()
    with pytest.raises(StoreError, match=r"part-0\.parquet: cannot be read: "):
        list(rows_of_parquet([tmp_path / "part-0.parquet"], StoreOptions()))


def test_rows_behind_one_that_the_store_refuses_are_stored(tmp_path):
    """The validator was made with other options than the store."""
    sizes = [10, 3000, 20, 5000, 30]
    lines = "".join(json.dumps({"topic": "T", "body": "x" * size}) + "\n" for size in sizes).encode()
    validator = bulk_ingest.PutValidator(StoreOptions(**SMALL))
    with open_store(tmp_path / "store", StoreOptions(**SMALL, max_message_size=1000)) as store:
        answers = list(bulk_ingest.append(store, rows_of_lines(io.BytesIO(lines), StoreOptions()), validator))
    assert [(one.number, one.status, one.reason) for one in answers] == [
        (1, PutStatus.PUT_OK, ""),
        (2, PutStatus.MESSAGE_ILLEGAL, "refused by the store"),
        (3, PutStatus.PUT_OK, ""),
        (4, PutStatus.MESSAGE_ILLEGAL, "refused by the store"),
        (5, PutStatus.PUT_OK, ""),
    ]
    with mqtool.open(tmp_path / "store") as made:
        assert [len(one.body) for one in made.messages()] == [10, 20, 30]


def test_a_chunk_ends_after_the_body_that_exceeds_its_bytes(monkeypatch):
    def rows(*sizes):
        return iter([Row(n, SimpleNamespace(body=b"x" * size)) for n, size in enumerate(sizes)] + [Row(9, None)])

    monkeypatch.setattr(bulk_ingest, "CHUNK_BYTES", 10)
    some = rows(4, 5, 1, 30, 0)
    taken = [[row.number for row in bulk_ingest.take(some, 2)] for _ in range(4)]
    assert taken == [[0, 1], [2, 3], [4, 9], []]
    large = rows(11, 11)
    assert [len(bulk_ingest.take(large, 2)) for _ in range(4)] == [1, 1, 1, 0]


def test_rows_of_a_table_are_read_in_batches_of_limited_size(tmp_path, monkeypatch):
    monkeypatch.setattr(row_source, "TABLE_BYTES", 3000)
    table = pa.table({"topic": ["T"] * 10, "body": [bytes([n]) * 1000 for n in range(10)]})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=6, compression="none", use_dictionary=False)
    with pq.ParquetFile(tmp_path / "t.parquet") as file:
        batches = list(row_source._batches(file))
    assert pa.Table.from_batches(batches) == table
    assert max(len(batch) for batch in batches) == 2


def test_a_body_that_dump_has_cut_is_no_message():
    lines = [{"topic": "T", "body": "Straß", "body_size": size} for size in (6, 7, None)]
    lines += [{"topic": "T", "body": "AAA=", "body_encoding": "base64", "body_size": 20}]
    text = "\n".join(map(json.dumps, lines)).encode()
    found = [(row.number, row.reason) for row in rows_of_lines(io.BytesIO(text), StoreOptions())]
    cut = (
        "body: expected the {} bytes that body_size states, found {}; write the row with its complete body (`dump` "
        "without --max-body)"
    )
    assert found == [(1, ""), (2, cut.format(7, 6)), (3, ""), (4, cut.format(20, 2))]
