"""What an export of a fixture must hold, made from the broker's own answers; and reading an export back."""

import base64
import ipaddress
import shutil
import struct
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from mqtool.export.plain import LocalRunner, export
from mqtool.export.run import ExportRequest, ExportResult
from mqtool.export.sources import resolve
from tests.support.stores import answered, answers, copy_store, store_fixture

WHOLE = tuple(store.name for store in answered("gets", "queries", "times", "messages", "queues"))
"""Stores whose every record the broker was asked for."""

SERVED = (
    "bcq-5.5.0",
    "cqext-4.9.7",
    "cqext-5.5.0",
    "multipath-5.5.0",
    "rocksdb-cq-5.5.0",
    "tieredstore-5.5.0",
    "timer-5.5.0",
    "metadata-4.9.7",
    "metadata-5.5.0",
)
"""Stores of which only what a pull consumer was served is known."""

HALF = {"RMQ_SYS_TRANS_HALF_TOPIC"}
SYSTEM = {
    "SCHEDULE_TOPIC_XXXX",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "TRANS_CHECK_MAX_TIME_TOPIC",
    "rmq_sys_wheel_timer",
    "TBW102",
    "SELF_TEST_TOPIC",
    "OFFSET_MOVED_EVENT",
    "rmq_sys_TRACE_DATA_DefaultRegion",
    "RMQ_SYS_TRACE_TOPIC",
}


def moment(millis: int) -> datetime:
    """Milliseconds since the epoch as the readers of Parquet give them."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=millis)


def host(text: str) -> str:
    """`address|port` as `1.2.3.4:5` or `[::1]:5`."""
    address, _, port = text.rpartition("|" if "|" in text else ":")
    parsed = ipaddress.ip_address(address.strip("[]"))
    return f"[{parsed}]:{port}" if parsed.version == 6 else f"{parsed}:{port}"


def units_of(name: str) -> set[tuple[str, int]]:
    """(topic, physical offset) of every unit that the broker's queues hold."""
    return {(queue["topic"], unit[1]) for queue in answers(name, "queues") for unit in queue["units"]}


def class_of(answer: dict[str, Any], units: set[tuple[str, int]]) -> str:
    """What kind of record it is: the broker gave it a unit, and its topic is not the broker's own."""
    topic = answer["topic"]
    if topic in HALF:
        return "half"
    if topic in SYSTEM:
        return "system"
    if (topic, answer["physicalOffset"]) in units:
        return "committed"
    return {4: "half", 12: "rolled-back"}[answer["sysFlag"] & 0xC]


def expected_rows(name: str, *, every_class: bool, broker: str) -> list[dict[str, Any]]:
    """The rows of the messages table, in CommitLog order."""
    units = units_of(name)
    found = []
    for answer in answers(name, "messages"):
        kind = class_of(answer, units)
        if every_class or kind == "committed":
            found.extend(_rows_of(answer, kind, broker))
    return found


def _rows_of(answer: dict[str, Any], kind: str, broker: str) -> list[dict[str, Any]]:
    stored = base64.b64decode(answer["body"] or "")
    body = stored if answer["decodedBody"] is None else base64.b64decode(answer["decodedBody"])
    record = {
        "broker": broker,
        "physical_offset": answer["physicalOffset"],
        "store_size": answer["storeSize"],
        "topic": answer["topic"],
        "queue_id": answer["queueId"],
        "queue_offset": answer["queueOffset"],
        "flag": answer["flag"],
        "sys_flag": answer["sysFlag"],
        "born_timestamp": moment(answer["bornTimestamp"]),
        "store_timestamp": moment(answer["storeTimestamp"]),
        "born_host": host(answer["bornHost"]),
        "store_host": host(answer["storeHost"]),
        "reconsume_times": answer["reconsumeTimes"],
        "prepared_transaction_offset": answer["preparedTransactionOffset"],
        "body_crc": answer["bodyCRC"],
        "offset_message_id": answer["offsetMsgId"],
        "magic_code": int(answer["magic"], 16) - (1 << 32),
        "body_decoded": True,
        "record_class": kind,
    }
    if not answer["sysFlag"] & 0x80:
        return [{**record, **_said(answer["properties"]), "body": body, "batch_index": None}]
    return [
        {
            **record,
            **_said(properties),
            "flag": flag,
            "body": part,
            "batch_index": index,
            "queue_offset": answer["queueOffset"] + index,
        }
        for index, (flag, part, properties) in enumerate(_inner_batch(body))
    ]


def _said(properties: dict[str, str]) -> dict[str, Any]:
    return {
        "properties": dict(properties),
        "tags": properties.get("TAGS"),
        "unique_key": properties.get("UNIQ_KEY"),
        "sharding_key": properties.get("__SHARDINGKEY"),
        "keys": [word for word in properties.get("KEYS", "").split(" ") if word],
    }


def _inner_batch(body: bytes) -> list[tuple[int, bytes, dict[str, str]]]:
    """Flag, body and properties of each message: size, magic, crc, flag, body, properties; all big-endian."""
    found, at = [], 0
    while at < len(body):
        size, _, _, flag, length = struct.unpack_from(">5i", body, at)
        start = at + 20
        (count,) = struct.unpack_from(">h", body, start + length)
        text = body[start + length + 2 : start + length + 2 + count].decode()
        pairs = (piece.split("\x01", 1) for piece in text.split("\x02") if piece)
        found.append((flag, body[start : start + length], dict(pairs)))
        at += size
    return found


def in_log_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows as the log has them, maps as dictionaries."""
    plain = [{**row, "properties": dict(row["properties"])} for row in rows]
    return sorted(plain, key=lambda row: (row["broker"], row["physical_offset"], row["batch_index"] or 0))


def run_export(store: Path | str | list[str], target: Path, **wanted: Any) -> ExportResult:
    """Exports in this process; keyword arguments are those of ExportRequest, and `workers`."""
    workers = wanted.pop("workers", 1)
    sources = resolve([str(store)] if isinstance(store, Path | str) else store)
    return export(ExportRequest(tuple(sources), str(target), **wanted), LocalRunner(workers))


def exported(name: str, tmp_path: Path, **wanted: Any) -> Path:
    """A fixture exported into a new directory."""
    target = tmp_path / "lake"
    run_export(f"b={copy_store(name, tmp_path)}", target, **wanted)
    return target


def table(target: Path, name: str = "messages") -> pa.Table:
    """A table of an export, all its files."""
    return ds.dataset(target / name, format="parquet").to_table()


def rows(target: Path, name: str = "messages") -> list[dict[str, Any]]:
    """Its rows."""
    found: list[dict[str, Any]] = table(target, name).to_pylist()
    return found


def files(target: Path, name: str = "messages") -> list[Path]:
    """Its files."""
    return sorted((target / name).rglob("*.parquet"))


def is_sorted(path: Path) -> bool:
    """Whether a file's rows are ordered by topic, queue, queue offset, physical offset and place in the batch."""
    names = ["topic", "queue_id", "queue_offset", "physical_offset", "batch_index"]
    columns = pq.read_table(path, columns=names).to_pydict()
    columns["batch_index"] = [-1 if value is None else value for value in columns["batch_index"]]
    keys = list(zip(*(columns[name] for name in names), strict=True))
    return keys == sorted(keys)


def served(name: str) -> Counter[tuple[Any, ...]]:
    """What a pull consumer got: topic, queue, offset, body, properties and times of each message."""
    found: Counter[tuple[Any, ...]] = Counter()
    for line in answers(name, "messages"):
        if line["kind"] == "message":
            body = base64.b64decode(line["body"])
            kept = {k: v for k, v in line["properties"].items() if k not in _ADDED}
            found[
                line["topic"],
                line["queueId"],
                line["queueOffset"],
                line["flag"],
                body,
                _frozen(kept),
                moment(line["bornTimestamp"]),
                moment(line["storeTimestamp"]),
                host(line["storeHost"]),
            ] += 1
    return found


_ADDED = ("MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME")
"""What the client puts into the properties of a message that it got."""


def _frozen(properties: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(properties.items()))


def as_served(row: dict[str, Any]) -> tuple[Any, ...]:
    """A row in the terms of `served`."""
    return (
        row["topic"],
        row["queue_id"],
        row["queue_offset"],
        row["flag"],
        row["body"],
        _frozen(dict(row["properties"])),
        row["born_timestamp"],
        row["store_timestamp"],
        row["store_host"],
    )


def grow(name: str, store: Path, end: int) -> None:
    """Makes the log of a copied store end at a physical offset: shorter than it was, or longer again.

    The queues are left out, as in a log that was copied alone.
    """
    original = store_fixture(name).directory
    assert original is not None
    shutil.rmtree(store / "consumequeue", ignore_errors=True)
    for segment in sorted((original / "commitlog").iterdir()):
        base, data = int(segment.name), segment.read_bytes()
        copy = store / "commitlog" / segment.name
        if base >= end:
            copy.unlink(missing_ok=True)
        else:
            copy.write_bytes(data[: end - base].ljust(len(data), b"\0"))


def record_ends(name: str) -> list[int]:
    """Physical offsets after each record of a store."""
    return [answer["physicalOffset"] + answer["storeSize"] for answer in answers(name, "messages")]
