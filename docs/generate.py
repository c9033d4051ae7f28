"""Fills the generated parts of docs/formats: offset tables and worked examples.

    python docs/generate.py           # write
    python docs/generate.py --check   # say what is out of date, write nothing; exit code 1 if anything is

A generated part stands between `<!-- generated: KIND NAME -->` and `<!-- /generated -->`. Tables
come from the docs of the layouts' own fields, examples from the bytes of fixtures.
"""

import re
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from msgspec import NODEFAULT, structs

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import construct as cs  # noqa: E402 - the checkout comes first
import zstandard  # noqa: E402

from docs.stale_files import write_or_check  # noqa: E402
from mqtool.formats import (  # noqa: E402
    checkpoint,
    codec,
    commit_log,
    config_files,
    consume_queue,
    dledger,
    equeue,
    hosts,
    index_file,
    message_batch,
    properties,
    tfchunk,
    tiered,
    timer,
)

PAGES = ROOT / "docs" / "formats"
FIXTURES = ROOT / "fixtures"
MARKED = re.compile(r"(<!-- generated: (\S+) (\S+) -->\n).*?(<!-- /generated -->)", re.DOTALL)
BYTES_A_LINE = 16
LONGEST_TEXT = 200

LAYOUTS: dict[str, cs.Struct] = {
    "record": commit_log.RECORD,
    "blank": commit_log.BLANK,
    "consume-queue": consume_queue.CONSUME_QUEUE_UNIT.layout,
    "consume-queue-ext": consume_queue.EXT_UNIT,
    "batch-consume-queue": consume_queue.BATCH_CONSUME_QUEUE_UNIT.layout,
    "index-header": index_file.HEADER.layout,
    "index-slot": index_file.SLOT_LAYOUT,
    "index-entry": index_file.ENTRY.layout,
    "checkpoint": checkpoint.CHECKPOINT.layout,
    "timer-slot": timer.SLOT.layout,
    "timer-log": timer.LOG_UNIT.layout,
    "timer-log-end": timer.LOG_END.layout,
    "timer-checkpoint": timer.CHECKPOINT.layout,
    "rocksdb-unit": consume_queue.ROCKS_UNIT.layout,
    "rocksdb-bound": consume_queue.ROCKS_BOUND.layout,
    "tiered-header": tiered.INDEX_HEADER.layout,
    "tiered-slot": tiered.INDEX_SLOT.layout,
    "tiered-item": tiered.INDEX_ITEM.layout,
    "tiered-node": tiered.INDEX_NODE.layout,
    "dledger-entry": dledger.ENTRY.layout,
    "dledger-blank": dledger.BLANK_ENTRY.layout,
    "dledger-index": dledger.INDEX_UNIT.layout,
    "offset-id": hosts.OFFSET_ID_V4.layout,
    "unique-key": hosts.UNIQUE_KEY_V4.layout,
    "batched-message": message_batch.BATCHED_MESSAGE,
    "equeue-header": equeue.HEADER.layout,
    "equeue-footer": equeue.FOOTER.layout,
    "equeue-entry": equeue.QUEUE_ENTRY.layout,
    "equeue-record": equeue.RECORD.layout,
    **equeue.ID_LAYOUTS,
    "tfchunk-header": tfchunk.HEADER.layout,
    "tfchunk-footer": tfchunk.FOOTER.layout,
    "tfchunk-narrow-footer": tfchunk.NARROW_FOOTER.layout,
    "tfchunk-map-entry": tfchunk.MAP_ENTRY.layout,
    "tfchunk-checkpoint": tfchunk.CHECKPOINT.layout,
    "tfchunk-prepare": tfchunk.PREPARE.layout,
    "tfchunk-commit": tfchunk.COMMIT.layout,
    "tfchunk-system": tfchunk.SYSTEM.layout,
}

BEANS: dict[str, Any] = {
    "topic": config_files.TopicConfig,
    "group": config_files.GroupConfig,
    "consumer-offsets": config_files.ConsumerOffsets,
    "delay-offsets": config_files.DelayOffsets,
    "data-version": config_files.DataVersion,
}


def read(path: str, position: int = 0, size: int | None = None) -> bytes:
    """Returns bytes of a fixture, unpacked if it is packed."""
    raw = (FIXTURES / path).read_bytes()
    data = zstandard.ZstdDecompressor().stream_reader(raw).read() if path.endswith(".zst") else raw
    return data[position:] if size is None else data[position : position + size]


def record_at(path: str, position: int) -> bytes:
    """Returns the whole record at a position of a fixture."""
    (size,) = struct.unpack_from(">i", read(path, position, 4))
    return read(path, position, size)


ORDERS = "orders-5.5.0/store"
ORDERS_LOG = f"{ORDERS}/commitlog/00000000000000000000"
ORDERS_INDEX = f"{ORDERS}/index/20261121003944398"
TIMER_LOG = "timer-5.5.0/store/timerlog/00000000000000000000"
BATCH_LOG = "bcq-5.5.0/store/commitlog/00000000000000000000"
EQUEUE_CHUNK = "equeue-small/store/message-chunks/message-chunk-000000000"
EQUEUE_QUEUE = "equeue-small/store/queue-chunks/orders/0/queue-chunk-000000001"
TFCHUNK = "tfchunk/plain/store/chunk-000001.000000"
SCAVENGED = "tfchunk/scavenged/store/chunk-000001.000001"
TIERED = "tieredstore-5.5.0/store/tiered/212d6b50_DefaultCluster/broker-a"
TIERED_INDEX = f"{TIERED}/rmq_sys_INDEX/0/INDEX/cfcd208400000000000000000000"
LEDGER = "dledger-mixed-5.5.0/store/dledger-n0/data/00000000000000131072"
LEDGER_INDEX = "dledger-mixed-5.5.0/store/dledger-n0/index/00000000000000000000.zst"
COMPACTED = "compaction-5.5.0/store/compaction/compactionCq/Compact/0/00000000000000000000"


def _first_record() -> commit_log.Record:
    return commit_log.parse_record(record_at(ORDERS_LOG, 0))


def _offset_id() -> bytes:
    record = _first_record()
    return bytes.fromhex(hosts.format_offset_id(record.store_host, record.physical_offset))


def _unique_key() -> bytes:
    return bytes.fromhex(properties.decode(_first_record().properties)[properties.UNIQUE_KEY])


def _sparse_end() -> bytes:
    end = consume_queue.BATCH_CONSUME_QUEUE_UNIT.build(consume_queue.SPARSE_END_UNIT)
    data = read(COMPACTED)
    return data[data.index(end) :][: len(end)]


EXAMPLES: dict[str, tuple[cs.Struct, str, Callable[[], bytes]]] = {
    "record": (LAYOUTS["record"], f"{ORDERS_LOG}, position 0", lambda: record_at(ORDERS_LOG, 0)),
    "blank": (LAYOUTS["blank"], f"{ORDERS_LOG}, position 130775", lambda: read(ORDERS_LOG, 130_775, 8)),
    "consume-queue": (
        LAYOUTS["consume-queue"],
        f"{ORDERS}/consumequeue/Orders/0/00000000000000000000, unit 0",
        lambda: read(f"{ORDERS}/consumequeue/Orders/0/00000000000000000000", 0, 20),
    ),
    "consume-queue-ext": (
        LAYOUTS["consume-queue-ext"],
        "cqext-5.5.0/store/consumequeue_ext/Ext/0/00000000000000000000, position 0",
        lambda: read("cqext-5.5.0/store/consumequeue_ext/Ext/0/00000000000000000000", 0, 34),
    ),
    "batch-consume-queue": (
        LAYOUTS["batch-consume-queue"],
        "bcq-5.5.0/store/batchconsumequeue/BatchTopic/0/00000000000000000000, unit 0",
        lambda: read("bcq-5.5.0/store/batchconsumequeue/BatchTopic/0/00000000000000000000", 0, 46),
    ),
    "sparse-end": (LAYOUTS["batch-consume-queue"], f"{COMPACTED}, last unit", _sparse_end),
    "index-header": (LAYOUTS["index-header"], f"{ORDERS_INDEX}, position 0", lambda: read(ORDERS_INDEX, 0, 40)),
    "index-slot": (
        LAYOUTS["index-slot"],
        f"{ORDERS_INDEX}, slot 0 (position 40)",
        lambda: read(ORDERS_INDEX, 40, 4),
    ),
    "index-entry": (
        LAYOUTS["index-entry"],
        f"{ORDERS_INDEX}, entry 370 (position 40 + 4 · 100 + 20 · 370)",
        lambda: read(ORDERS_INDEX, index_file.entry_position(370, 100), 20),
    ),
    "checkpoint-4.9": (
        LAYOUTS["checkpoint"],
        "orders-4.9.7/store/checkpoint",
        lambda: read("orders-4.9.7/store/checkpoint", 0, 48),
    ),
    "checkpoint-5.5": (LAYOUTS["checkpoint"], f"{ORDERS}/checkpoint", lambda: read(f"{ORDERS}/checkpoint", 0, 48)),
    "timer-slot": (
        LAYOUTS["timer-slot"],
        "timer-5.5.0/store/timerwheel, slot 174138",
        lambda: read("timer-5.5.0/store/timerwheel.zst", 174_138 * timer.SLOT_SIZE, timer.SLOT_SIZE),
    ),
    "timer-log": (LAYOUTS["timer-log"], f"{TIMER_LOG}, position 104", lambda: read(TIMER_LOG, 104, 52)),
    "timer-log-end": (LAYOUTS["timer-log-end"], f"{TIMER_LOG}, position 988", lambda: read(TIMER_LOG, 988, 16)),
    "timer-checkpoint": (
        LAYOUTS["timer-checkpoint"],
        "timer-5.5.0/store/config/timercheck",
        lambda: read("timer-5.5.0/store/config/timercheck", 0, 56),
    ),
    "offset-id": (LAYOUTS["offset-id"], f"the first record of {ORDERS_LOG}", _offset_id),
    "unique-key": (hosts.UNIQUE_KEY_V6.layout, f"UNIQ_KEY of the first record of {ORDERS_LOG}", _unique_key),
    "batched-message": (
        LAYOUTS["batched-message"],
        f"body of the record at {BATCH_LOG}, position 0, its first message",
        lambda: commit_log.parse_record(record_at(BATCH_LOG, 0)).body,
    ),
}


def _framed(path: str, position: int) -> bytes:
    """Returns the record between the two lengths of a frame."""
    return read(path, position + 4, equeue.LENGTH.parse(read(path, position, 4)).length)


EXAMPLES |= {
    "tiered-header": (LAYOUTS["tiered-header"], f"{TIERED_INDEX}, position 0", lambda: read(TIERED_INDEX, 0, 28)),
    "tiered-slot": (LAYOUTS["tiered-slot"], f"{TIERED_INDEX}, slot 0 (position 28)", lambda: read(TIERED_INDEX, 28, 8)),
    "tiered-item": (LAYOUTS["tiered-item"], f"{TIERED_INDEX}, position 828", lambda: read(TIERED_INDEX, 828, 28)),
    "dledger-entry": (LAYOUTS["dledger-entry"], f"{LEDGER}, position 0", lambda: read(LEDGER, 0, 48)),
    "dledger-blank": (LAYOUTS["dledger-blank"], f"{LEDGER}, position 65185", lambda: read(LEDGER, 65_185, 8)),
    "dledger-index": (
        LAYOUTS["dledger-index"],
        f"{LEDGER_INDEX.removesuffix('.zst')}, unit 1",
        lambda: read(LEDGER_INDEX, 32, 32),
    ),
    "equeue-header": (LAYOUTS["equeue-header"], EQUEUE_CHUNK, lambda: read(EQUEUE_CHUNK, 0, 128)),
    "equeue-footer": (
        LAYOUTS["equeue-footer"],
        f"{EQUEUE_CHUNK}, its last 128 bytes",
        lambda: read(EQUEUE_CHUNK)[-128:],
    ),
    "equeue-record": (
        LAYOUTS["equeue-record"],
        f"{EQUEUE_CHUNK}, position 132 (the frame begins at 128)",
        lambda: _framed(EQUEUE_CHUNK, 128),
    ),
    "equeue-entry": (LAYOUTS["equeue-entry"], f"{EQUEUE_QUEUE}, position 128", lambda: read(EQUEUE_QUEUE, 128, 12)),
    "equeue-id": (
        LAYOUTS["equeue-id"],
        f"the first record of {EQUEUE_CHUNK}",
        lambda: bytes.fromhex(equeue.CURRENT.parse(_framed(EQUEUE_CHUNK, 128))[0].message_id.decode()),
    ),
    "tfchunk-header": (LAYOUTS["tfchunk-header"], SCAVENGED, lambda: read(SCAVENGED, 0, 128)),
    "tfchunk-footer": (
        LAYOUTS["tfchunk-footer"],
        f"{SCAVENGED}, its last 128 bytes",
        lambda: read(SCAVENGED)[-128:],
    ),
    "tfchunk-map-entry": (
        LAYOUTS["tfchunk-map-entry"],
        f"{SCAVENGED}, entry 1 (position 128 + 10932 + 12)",
        lambda: read(SCAVENGED, 128 + 10_932 + 12, 12),
    ),
    "tfchunk-checkpoint": (
        LAYOUTS["tfchunk-checkpoint"],
        "tfchunk/plain/store/writer.chk",
        lambda: read("tfchunk/plain/store/writer.chk"),
    ),
    "tfchunk-prepare": (
        LAYOUTS["tfchunk-prepare"],
        f"{TFCHUNK}, position 132 (the frame begins at 128)",
        lambda: _framed(TFCHUNK, 128),
    ),
}

TEXTS = {
    "delay-offsets-4.9": "orders-4.9.7/store/config/delayOffset.json",
    "delay-offsets-5.5": f"{ORDERS}/config/delayOffset.json",
    "timer-metrics": f"{ORDERS}/config/timermetrics",
    "epoch": "controller-5.5.0/store-x/epochFileCheckpoint",
    "identity": "controller-5.5.0/store-x/brokerIdentity",
}


def table(name: str) -> Iterator[str]:
    """Yields the offset table of a layout; offsets are given up to the first field of variable place."""
    layout = LAYOUTS[name]
    places = {field.name: field.offset for field in codec.leading_fields(layout, sys_flag=0)}
    yield from ("| Offset | Type | Field | Meaning |", "|---:|---|---|---|")
    for field, size, docs in codec.all_fields(layout):
        yield f"| {places.get(field, 'then')} | {size} | `{field}` | {docs} |"


def members(name: str) -> Iterator[str]:
    """Yields the table of a configuration object's members."""
    yield from ("| Member | Python field | Default |", "|---|---|---|")
    for field in structs.fields(BEANS[name]):
        if field.name != "extra":
            first, *words = field.name.split("_")
            member = first + "".join(word.capitalize() for word in words)
            shown = "" if field.default is NODEFAULT else "absent" if field.default is None else f"`{field.default!r}`"
            yield f"| `{member}` | `{field.name}` | {shown} |"


def example(name: str) -> Iterator[str]:
    """Yields the bytes of a real unit, field by field."""
    layout, place, take = EXAMPLES[name]
    data = take()
    position = 0
    yield from (_caption(place), "", "```")
    for field, value in codec.parse(layout, data).items():
        size = _size_of(layout, field, value, data)
        raw = data[position : position + size]
        for start in range(0, max(len(raw), 1), BYTES_A_LINE):
            meaning = f"{field} = {_shown(field, value)}" if start == 0 else ""
            yield f"{position + start:6}  {raw[start : start + BYTES_A_LINE].hex():32}  {meaning}".rstrip()
        position += size
    yield "```"


def text(name: str) -> Iterator[str]:
    """Yields a text fixture, tabs as they are."""
    yield from (_caption(TEXTS[name]), "", "```", *read(TEXTS[name]).decode().splitlines(), "```")


def _caption(place: str) -> str:
    return "In fixtures: " + re.sub(r"([\w.-]+/[^\s,]+)", r"`\1`", place) + ":"


def _size_of(layout: cs.Struct, name: str, value: Any, data: bytes) -> int:
    member = next(member for member in layout.subcons if member.name == name)
    if isinstance(value, bytes):
        return len(member.build(value, **codec.parse(layout, data)))
    return int(member.sizeof(**codec.parse(layout, data)))


def _shown(name: str, value: Any) -> str:
    if isinstance(value, int):
        is_code = name.startswith("magic") and abs(value) > 0xF
        return f"{value} (0x{value & 0xFFFFFFFF:08x})" if is_code else str(value)
    if name.endswith("_host"):
        return hosts.text_of(value)
    if name == "address":
        return hosts.parse(value + bytes(4)).address
    if value and not any(value):
        return f"{len(value)} zero bytes"
    try:
        decoded = value.decode()
    except UnicodeDecodeError:
        return f"{len(value)} bytes"
    if len(decoded) > LONGEST_TEXT:
        return f"{decoded[:LONGEST_TEXT]!r}…"
    return repr(decoded) if name != "bit_map" else f"{len(value)} bytes"


KINDS: dict[str, Callable[[str], Iterator[str]]] = {
    "table": table,
    "members": members,
    "example": example,
    "text": text,
}


def filled(page: str) -> str:
    """Returns a page with its generated parts as they should be."""
    return MARKED.sub(lambda m: m[1] + "\n" + "\n".join(KINDS[m[2]](m[3])) + "\n\n" + m[4], page)


def main() -> int:
    """Writes or checks every page; returns the exit code."""
    return write_or_check({path: filled(path.read_text("utf-8")) for path in sorted(PAGES.glob("*.md"))})


if __name__ == "__main__":
    sys.exit(main())
