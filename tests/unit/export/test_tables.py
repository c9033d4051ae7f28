"""What is in the tables: bodies, redaction, rejected values, damage, columns, directories."""

import json
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from mqtool.errors import CorruptionError, UsageError
from mqtool.export import schema
from mqtool.export.parquet import WriteOptions
from mqtool.export.schema import ALL_COLUMNS, Body, ReadRequest
from mqtool.store.log.selection import Selection
from tests.support import lake
from tests.support.stores import copy_store, store_fixture

NAME = "orders-5.5.0"
COMMITTED = lake.expected_rows(NAME, every_class=False, broker="b")


def is_json(body: bytes) -> bool:
    try:
        json.loads(body.decode(), parse_constant=lambda word: 1 / 0)
    except (ValueError, ZeroDivisionError):
        return False
    return True


def is_text(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


@pytest.mark.parametrize(("body", "fits"), [(Body.TEXT, is_text), (Body.JSON, is_json)])
def test_bodies_that_do_not_fit_are_null_and_rejected_values(tmp_path, body, fits):
    target = lake.exported(NAME, tmp_path, read=ReadRequest(body=body))
    found = lake.in_log_order(lake.rows(target))
    assert [row["body"] for row in found] == [r["body"].decode() if fits(r["body"]) else None for r in COMMITTED]
    rejected = {row["physical_offset"]: row for row in lake.rows(target, "rejected_values")}
    bad = {row["physical_offset"]: row for row in COMMITTED if not fits(row["body"])}
    assert bad
    assert {at: row["value"] for at, row in rejected.items()} == {at: row["body"] for at, row in bad.items()}
    assert {at: (row["topic"], row["queue_offset"]) for at, row in rejected.items()} == {
        at: (row["topic"], row["queue_offset"]) for at, row in bad.items()
    }
    assert {row["column"] for row in rejected.values()} == {"body"}
    assert all(row["reason"] for row in rejected.values())


def test_a_body_that_cannot_be_decompressed_stays_as_stored_and_says_so(tmp_path):
    store = copy_store(NAME, tmp_path)
    packed = next(row for row in COMMITTED if row["sys_flag"] & 1)
    segment = max(s for s in (store / "commitlog").iterdir() if int(s.name) <= packed["physical_offset"])
    data = bytearray(segment.read_bytes())
    at = packed["physical_offset"] - int(segment.name)
    data[at + 8 : at + 12] = bytes(4)  # no CRC, so that the record counts
    data[at + 88 : at + 92] = b"\xff" * 4
    segment.write_bytes(data)
    lake.run_export(f"b={store}", tmp_path / "lake")
    found = next(r for r in lake.rows(tmp_path / "lake") if r["physical_offset"] == packed["physical_offset"])
    assert not found["body_decoded"]
    assert found["body"].startswith(b"\xff\xff\xff\xff")
    lake.run_export(f"b={store}", tmp_path / "text", read=ReadRequest(body=Body.TEXT))
    found = next(r for r in lake.rows(tmp_path / "text") if r["physical_offset"] == packed["physical_offset"])
    assert found["body"] is None
    rejected = {row["physical_offset"]: row["reason"] for row in lake.rows(tmp_path / "text", "rejected_values")}
    assert rejected[packed["physical_offset"]] == "the body cannot be decompressed"


def set_born_timestamp(store: Path, physical_offset: int, millis: int) -> None:
    segment = max(s for s in (store / "commitlog").iterdir() if int(s.name) <= physical_offset)
    data = bytearray(segment.read_bytes())
    at = physical_offset - int(segment.name) + 40
    data[at : at + 8] = millis.to_bytes(8, "big", signed=True)
    segment.write_bytes(data)


@pytest.mark.parametrize("millis", [2**63 - 1, -(2**63), 253_402_300_800_000, -62_135_596_800_001])
def test_a_time_outside_of_every_calendar_is_null_and_a_rejected_value(tmp_path, millis):
    store = copy_store(NAME, tmp_path)
    set_born_timestamp(store, COMMITTED[7]["physical_offset"], millis)
    lake.run_export(f"b={store}", tmp_path / "lake")
    found = lake.in_log_order(lake.rows(tmp_path / "lake"))
    assert found[7] == {**COMMITTED[7], "born_timestamp": None}
    (value,) = lake.rows(tmp_path / "lake", "rejected_values")
    assert (value["column"], value["value"]) == ("born_timestamp", str(millis).encode())


@pytest.mark.parametrize("millis", [0, 253_402_300_799_999, -62_135_596_800_000])
def test_a_time_at_the_edge_of_the_calendar_is_kept(tmp_path, millis):
    store = copy_store(NAME, tmp_path)
    set_born_timestamp(store, COMMITTED[7]["physical_offset"], millis)
    lake.run_export(f"b={store}", tmp_path / "lake")
    found = lake.in_log_order(lake.rows(tmp_path / "lake"))
    assert found[7]["born_timestamp"] == lake.moment(millis)
    assert lake.rows(tmp_path / "lake", "rejected_values") == []


def everything(target: Path) -> bytes:
    return b"\n".join(repr(lake.rows(target, table)).encode() for table in ("messages", "damage", "rejected_values"))


REDACTED = [
    ("body", lambda row: [row["body"]]),
    ("keys", lambda row: row["keys"]),
    ("unique_key", lambda row: [row["unique_key"]]),
    ("born_host", lambda row: [row["born_host"], row["unique_key"]]),
    ("store_host", lambda row: [row["store_host"], row["offset_message_id"]]),
    ("properties", lambda row: list(row["properties"].values())),
]


@pytest.mark.parametrize(("column", "values"), REDACTED, ids=[column for column, _ in REDACTED])
def test_a_redacted_value_stands_nowhere(tmp_path, column, values):
    read = ReadRequest(
        Selection(topics=("Keyed", "Transfers", "Bodies")),
        body=Body.JSON,
        redact=schema.closure([column]),
        salt=b"salt",
    )
    target = lake.exported(NAME, tmp_path, read=read)
    shown = everything(target)
    rows = [row for row in COMMITTED if row["topic"] in ("Keyed", "Transfers", "Bodies")]
    secret = {value for row in rows for value in values(row) if value is not None and len(value) > 6}
    assert secret
    assert [v for v in secret if (v if isinstance(v, bytes) else v.encode()) in shown] == []
    assert len(lake.rows(target)) == len(rows)


def test_redacted_tags_stand_neither_in_their_column_nor_among_the_properties(tmp_path):
    target = lake.exported(NAME, tmp_path, read=ReadRequest(redact=schema.closure(["tags"]), salt=b"salt"))
    for found, known in zip(lake.in_log_order(lake.rows(target)), COMMITTED, strict=True):
        assert (found["tags"] is None) == (known["tags"] is None)
        assert found["tags"] is None or found["tags"].startswith("redacted:")
        assert found["properties"] == known["properties"] | ({} if known["tags"] is None else {"TAGS": found["tags"]})


def test_the_crc_of_a_record_does_not_stand_next_to_redacted_values(tmp_path):
    read = ReadRequest(redact=schema.closure(["body"]), salt=b"salt")
    rows = lake.rows(lake.exported("propcrc-5.5.0", tmp_path, read=read))
    known = lake.expected_rows("propcrc-5.5.0", every_class=False, broker="b")
    assert any("__CRC32#" in row["properties"] for row in known)
    assert all(dict(row["properties"]).get("__CRC32#", "redacted:").startswith("redacted:") for row in rows)
    names = [sorted(dict(row["properties"])) for row in lake.in_log_order(rows)]
    assert names == [sorted(row["properties"]) for row in known]


def test_equal_values_stay_equal_when_they_are_redacted(tmp_path):
    read = ReadRequest(redact=schema.closure(["keys"]), salt=b"salt")
    found = lake.in_log_order(lake.rows(lake.exported(NAME, tmp_path, read=read)))
    pairs = {
        (a, b)
        for row, known in zip(found, COMMITTED, strict=True)
        for a, b in zip(row["keys"], known["keys"], strict=True)
    }
    assert len({a for a, _ in pairs}) == len({b for _, b in pairs}) == len(pairs)


def test_hashes_differ_between_salts_and_agree_within_one(monkeypatch):
    assert schema.new_salt() != schema.new_salt()
    monkeypatch.setenv(schema.SALT_VARIABLE, "ours")
    assert schema.new_salt() == schema.new_salt()
    assert schema.pseudonym(b"x", b"1") != schema.pseudonym(b"x", b"2")


@pytest.mark.parametrize("column", ["topic", "queue_offset", "nothing"])
def test_what_places_a_message_cannot_be_redacted(column):
    with pytest.raises(UsageError, match="cannot be redacted"):
        schema.closure([column])


def test_columns_are_those_asked_for_in_that_order(tmp_path):
    target = lake.exported(NAME, tmp_path, read=ReadRequest(columns=("body", "topic")))
    assert lake.table(target).column_names == ["body", "topic"]
    assert Counter(tuple(row.values()) for row in lake.rows(target)) == Counter(
        (row["body"], row["topic"]) for row in COMMITTED
    )


def test_an_unknown_column_is_refused():
    with pytest.raises(UsageError, match="unknown column 'topics'; known: broker, physical_offset"):
        ReadRequest(columns=("topics",))


@pytest.mark.parametrize(
    "partition_by", [("topic",), ("date",), ("topic", "date", "hour"), ("date", "topic")], ids=",".join
)
def test_files_lie_in_the_directory_of_their_rows(tmp_path, partition_by):
    target = lake.exported(NAME, tmp_path, write=WriteOptions(partition_by))
    seen = 0
    for path in lake.files(target):
        parts = dict(part.split("=", 1) for part in path.parent.relative_to(target / "messages").parts)
        assert tuple(parts) == partition_by
        for row in pq.ParquetFile(path).read().to_pylist():
            said = {
                "topic": row["topic"].replace("%", "%25"),
                "date": row["store_timestamp"].date().isoformat(),
                "hour": f"{row['store_timestamp'].hour:02d}",
            }
            assert parts == {name: said[name] for name in partition_by}
            seen += 1
    assert seen == len(COMMITTED)


def test_a_topic_too_long_for_a_directory_still_has_one(tmp_path):
    target = lake.exported("v2-long-topic", tmp_path, write=WriteOptions(("topic",)))
    found = [row for path in lake.files(target) for row in pq.ParquetFile(path).read().to_pylist()]
    assert lake.in_log_order(found) == lake.expected_rows("v2-long-topic", every_class=False, broker="b")
    directories = {path.parent.name for path in lake.files(target)}
    assert len(directories) == len({row["topic"] for row in found})
    assert max(len(name.encode()) for name in directories) <= 255


def test_files_carry_statistics_order_and_docs(tmp_path):
    (path,) = lake.files(lake.exported(NAME, tmp_path))
    meta = pq.ParquetFile(path).metadata
    assert [column.column_index for column in meta.row_group(0).sorting_columns] == [
        ALL_COLUMNS.index(name) for name in ("topic", "queue_id", "queue_offset")
    ]
    columns = [meta.row_group(0).column(index) for index in range(meta.num_columns)]
    assert all(column.compression == "ZSTD" and column.has_offset_index for column in columns)
    plain = {column.path_in_schema for column in columns if not (column.is_stats_set and column.has_column_index)}
    assert plain == {"body", "properties.key_value.value"}
    topic = next(column for column in columns if column.path_in_schema == "topic")
    topics = sorted({row["topic"] for row in COMMITTED})
    assert (topic.statistics.min, topic.statistics.max) == (topics[0], topics[-1])
    assert all(field.metadata[b"docs"] for field in pq.read_schema(path))


def test_a_file_ends_soon_after_its_size(tmp_path):
    target = lake.exported(NAME, tmp_path, write=WriteOptions(file_bytes=20_000, row_group_bytes=50_000))
    assert len(lake.files(target)) > 3
    assert all(path.stat().st_size < 20_000 + 2 * 50_000 for path in lake.files(target))
    assert all(lake.is_sorted(path) for path in lake.files(target))


@pytest.mark.slow
def test_failfast_publishes_nothing(tmp_path):
    store = copy_store(NAME, tmp_path)
    segment = min((store / "commitlog").iterdir())
    data = bytearray(segment.read_bytes())
    data[COMMITTED[5]["physical_offset"] + 88] ^= 1
    segment.write_bytes(data)
    read = ReadRequest(fail_fast=True)
    for workers in (1, 2, 3):
        with pytest.raises(CorruptionError, match=f"physical offset {COMMITTED[5]['physical_offset']}: bad-crc"):
            lake.run_export(store, tmp_path / "lake", read=read, workers=workers, split_bytes=100_000)
        assert [path.name for path in (tmp_path / "lake").iterdir()] == ["_mqtool"]
        assert not list((tmp_path / "lake" / "_mqtool").glob("commit-*"))


@pytest.mark.slow
def test_threads_and_processes_write_the_files_of_one_worker(tmp_path):
    store = store_fixture(NAME).directory
    digests = []
    for workers in (1, 2, 3):
        target = tmp_path / str(workers)
        lake.run_export(store, target, workers=workers, split_bytes=60_000)
        digests.append({path.relative_to(target): path.read_bytes() for path in lake.files(target)})
    assert digests[0] == digests[1] == digests[2]
    assert len(digests[0]) > 4
