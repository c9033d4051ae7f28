"""Each parser of bytes on mutated bytes of real files and frames: a value, or one of our own errors, at once.

`python -m tests.fuzz.test_parser_fuzz 1000000` gives each target so many inputs; names after the number choose targets,
`--seed N` begins at another seed. An input that ends in a way that was not seen before joins the corpus, which begins with
pieces of the fixtures and what earlier runs have kept in `corpus.zip`; `--keep` adds to that. A failure prints the
target, the error and the input.
"""

import argparse
import base64
import json
import random
import re
import resource
import sys
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import mqtool
from mqtool.errors import MqtoolError
from mqtool.formats import (
    checkpoint,
    commit_log,
    compression,
    config_files,
    config_json,
    consume_queue,
    dledger,
    epoch,
    equeue,
    hosts,
    index_file,
    java,
    message_batch,
    properties,
    service_records,
    sql92,
    tfchunk,
    tiered,
    timer,
)
from mqtool.protocol import frames, registration_body
from mqtool.records.damage import Damage
from mqtool.records.entries import walk_kind
from mqtool.records.walk import SegmentSpan
from mqtool.repair.plan import Plan
from mqtool.server import replication
from mqtool.server.admin import site
from tests.fuzz.mutations import KINDS
from tests.support.compressed import compress
from tests.support.stores import FIXTURES, fixture, read_lines

ROUNDS = 300
SECONDS = 2.0
"""An input that takes longer hangs."""
MORE_MEMORY = 200 << 10
"""KiB that all inputs of all targets together may take."""
_POOL = 400
CORPUS = Path(__file__).with_name("corpus.zip")
"""Inputs that each end in a way of their own, as `TARGET/NUMBER`."""
_KEPT, _KEPT_SIZE = 48, 1024
"""Inputs of a target that are kept, and bytes of the longest."""
_TOLD = 300
"""Characters of an error that tell its kind; some quote their input."""
_TEXTS = (
    b"9" * 5000,
    b"-1",
    b"0",
    b"\xc2\xb2",
    b"1e999",
    b"null",
    b"[" * 3000,
    b"{",
    b'"',
    b"../../x",
    b"\0",
    b"\xff\xfe",
    b"",
)


_SERVICES = (
    "SCHEDULE_TOPIC_XXXX",
    "rmq_sys_wheel_timer",
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
)


@dataclass
class Target:
    """One parser.

    Attributes:
        parse: takes bytes; a tuple that it returns says in which way it ended.
        seeds: valid inputs.
        errors: that are an answer.
    """

    parse: Callable[[bytes], Any]
    seeds: Callable[[], list[bytes]]
    errors: tuple[type[Exception], ...] = (MqtoolError,)


@dataclass
class Tally:
    """What a target came to.

    Attributes:
        inputs: that were parsed.
        refused: those with an error of ours, damage or a problem.
        pool: inputs of the corpus at the end.
        new: those of them that were found in this run.
        seconds: in all; the slowest input.
        failures: input in base64, by kind of error.
    """

    inputs: int = 0
    refused: int = 0
    pool: int = 0
    new: list[bytes] = field(default_factory=list)
    seconds: float = 0.0
    slowest: float = 0.0
    failures: dict[str, str] = field(default_factory=dict)


def files(pattern: str, most: int = 2048, count: int = 6) -> list[bytes]:
    """Beginnings of files of the fixtures."""
    found = [path for path in sorted(FIXTURES.glob(pattern)) if path.is_file() and path.stat().st_size]
    return [path.read_bytes()[:most].rstrip(b"\0") or bytes(64) for path in found[:: max(1, len(found) // count)]][
        :count
    ]


def records() -> list[bytes]:
    """Records of every shape."""
    found = []
    for name in ("orders-4.9.7", "hosts-5.5.0", "propcrc-5.5.0", "bcq-5.5.0"):
        with mqtool.open(fixture(name) / "store") as store:
            for item in list(store.messages(limit=4)):
                assert not isinstance(item, Damage)
                found.append(store.commit_log.read(item.physical_offset, item.store_size))
    return found


def logs() -> list[bytes]:
    """Beginnings of segments, some records each."""
    return files("*/store/commitlog/00000000000000000000", 4096, 8)


def properties_of_records() -> list[bytes]:
    return [bytes(commit_log.parse_record(data).properties) for data in records()]


def bodies(topic: str) -> list[bytes]:
    """Bodies of messages of a topic, wherever it occurs."""
    found = []
    for name in ("metadata-5.5.0", "timer-5.5.0", "metadata-4.9.7"):
        with mqtool.open(fixture(name) / "store") as store:
            found += [item.body for item in store.messages(topics=[topic], limit=4) if not isinstance(item, Damage)]
    return found


def each(*parsers: Callable[[bytes], Any]) -> Callable[[bytes], tuple[str, ...]]:
    """Gives the input to each of some parsers; how each ended."""

    def parse(data: bytes) -> tuple[str, ...]:
        ways = []
        for parser in parsers:
            try:
                parser(data)
                ways.append("")
            except MqtoolError as error:
                ways.append(str(error))
        return tuple(ways)

    return parse


def walk(data: bytes, *, entries: bool = False) -> tuple[str, ...]:
    """A segment from its first byte to its last, with what every frame says."""
    span = SegmentSpan(0, len(data), is_last=True, entries=entries)
    walked, ways = walk_kind(span)(lambda at, count: data[at : at + count], span), []
    for item in walked:
        if isinstance(item, Damage):
            ways.append(item.detail)
        else:
            assert len(item.crc_matches) == len(item.topic_length) == len(item)
    return tuple(ways[:3])


def feed(data: bytes) -> tuple[str, ...]:
    """A stream of frames, in two pieces."""
    framer = frames.Framer()
    framer.feed(data[: len(data) // 2])
    framer.feed(data[len(data) // 2 :])
    return (str(framer.error),)


def feed_transfer(data: bytes) -> None:
    """What a master sends."""
    assembler = replication.RecordAssembler(0, 65536)
    for piece in replication.TransferReader().feed(data):
        for made in assembler.feed(replication.Piece(assembler.expected, piece.data)):
            assert made.data


def inflate(kind: compression.CompressionType) -> Callable[[bytes], None]:
    """Decompresses a body; a bomb stops at the limit."""

    def parse(data: bytes) -> None:
        assert len(compression.decompress(data, kind, 1 << 20)) <= 1 << 20

    return parse


def packed() -> list[bytes]:
    return [compress(b"text " * 40, kind) for kind in compression.CompressionType]


def requests() -> list[bytes]:
    """Frames with headers in both ways, with and without a body."""
    fields = {"topic": "Orders", "queueId": "0", "sysFlag": "0", "bornTimestamp": "1700000000000"}
    made = []
    for way in (0, 1):
        for body in (b"", b"text"):
            command = mqtool_command(way, fields, body)
            made.append(b"".join(bytes(part) for part in frames.encode(command)))
    return made


def mqtool_command(way: int, fields: dict[str, str], body: bytes) -> Any:
    """A request to send a message."""
    from mqtool.protocol.command import Command, Serialization

    return Command(10, fields=fields, body=body, serialization=Serialization(way))


def registrations() -> list[bytes]:
    """A broker's registration in both forms."""
    topics = config_files.parse_topics(
        fixture("metadata-5.5.0/store/config/topics.json").read_bytes()
    ).topic_config_table
    some = registration_body.RegisterBody(dict(list(topics.items())[:3]))
    return [registration_body.build(some), registration_body.build(some, compressed=True)]


def register(*, compressed: bool, version: int) -> Callable[[bytes], Any]:
    """What a broker of a release says about itself."""
    return lambda data: registration_body.parse(data, compressed=compressed, version=version)


def text(parser: Callable[[str], Any]) -> Callable[[bytes], Any]:
    """A parser of text."""
    return lambda data: parser(data.decode("utf-8", "replace"))


def lines(path: str, member: str, most: int = 20) -> list[bytes]:
    """Values of the fixtures' answers."""
    found = [str(line[member]).encode() for line in read_lines(fixture(path)) if line.get(member)]
    return found[:: max(1, len(found) // most)]


def service(data: bytes) -> tuple[str, ...]:
    """A message in the topic of each service: properties before the first line end, its body after it."""
    head, _, body = data.partition(b"\n")
    found = properties.decode(head)
    problems = [str(service_records.problem_of(topic, found, body, 0, 259_200)) for topic in _SERVICES]
    revived = each(*(lambda body, tag=tag: service_records.revive_record(tag, body) for tag in ("ck", "ack", "bAck")))
    return (*problems, *revived(body))


def waiting() -> list[bytes]:
    """Messages that wait for a service."""
    point = {"so": 0, "n": 2, "d": [0, 1], "pt": 1, "it": 1, "q": 0, "c": "G", "t": "T", "bn": "b"}
    ack = {"ao": 1, "so": 0, "q": 0, "c": "G", "t": "T", "pt": 1, "bn": "b", "aol": [1, 2]}
    head = b"REAL_TOPIC\1T\2REAL_QID\x011\2TIMER_OUT_MS\x015\2TRANSACTION_CHECK_TIMES\x013\2"
    return [head + b"\n" + body for body in (json.dumps(point).encode(), json.dumps(ack).encode(), b"1,2,3,")]


def plans() -> list[bytes]:
    """A plan, as `mqtool plan` writes it."""
    from mqtool.repair import SetAside, make_plan
    from tests.support.engine_faults import fast_directory, remove
    from tests.support.stores import copy_store

    directory = fast_directory()
    try:
        root = copy_store("orders-5.5.0", directory)
        return [make_plan(root, [SetAside(("checkpoint",))]).to_json().encode()]
    finally:
        remove(directory)


def _plan(data: bytes) -> None:
    """A plan whose checksum is right whatever it says."""
    Plan.from_json(data)


def request_heads() -> list[bytes]:
    return [b"GET /topics?name=Orders&from=3 HTTP/1.1\r\nHost: localhost:1\r\nAccept: */*", b"GET / HTTP/1.0"]


def sql() -> list[bytes]:
    return lines("sql92.jsonl", "expression") or [b"a > 3 AND b IN ('x', 'y')"]


TARGETS = {
    "CommitLog record": Target(commit_log.parse_record, records),
    "CommitLog segment": Target(walk, logs),
    "DLedger segment": Target(
        lambda data: walk(data, entries=True), lambda: files("dledger*/store/dledger-*/data/*", 4096)
    ),
    "properties": Target(each(properties.decode, properties.pairs), properties_of_records),
    "inner batch": Target(
        each(lambda data: list(message_batch.split(data)), lambda data: list(message_batch.unwrap(data, 0))),
        lambda: [message_batch.build(message_batch.make(b"text", b"a\1b\2")) * 3],
    ),
    "compressed body": Target(each(*map(inflate, compression.CompressionType)), packed),
    "queue units": Target(
        each(consume_queue.CONSUME_QUEUE_UNIT.parse, consume_queue.BATCH_CONSUME_QUEUE_UNIT.parse),
        lambda: (
            files("orders-5.5.0/store/consumequeue/*/*/*", 46) + files("bcq-5.5.0/store/batchconsumequeue/*/*/*", 46)
        ),
    ),
    "queue extension": Target(consume_queue.parse_ext_unit, lambda: files("cqext-*/store/consumequeue_ext/*/*/*", 128)),
    "index file": Target(
        each(index_file.HEADER.parse, index_file.ENTRY.parse), lambda: files("orders-*/store/index/*", 120)
    ),
    "checkpoints": Target(
        each(checkpoint.parse, timer.parse_checkpoint, epoch.parse),
        lambda: (
            files("*/store*/checkpoint", 64)
            + files("timer-5.5.0/store/config/timercheck")
            + files("controller-5.5.0/store-x/epoch*")
            + files("controller-5.5.0/store-x/brokerIdentity")
        ),
    ),
    "tables of config/": Target(
        each(
            config_files.parse_topics,
            config_files.parse_groups,
            config_files.parse_consumer_offsets,
            config_files.parse_delay_offsets,
            config_json.parse,
        ),
        lambda: [*files("metadata-*/store/config/*.json", 1500), b'{"a":{1:2,"b":[true,null,"x"]}}'],
    ),
    "broker.conf": Target(each(java.parse_properties), lambda: files("*/broker*.conf", 800)),
    "DLedger state": Target(
        each(dledger.committed_index_text, dledger.parse_state, dledger.parse_current_term),
        lambda: files("dledger*/store*/dledger-*/*") or [b"currTerm=1\nvoteLeader=n0\n"],
    ),
    "timer log and wheel": Target(
        each(timer.SLOT.parse, timer.LOG_UNIT.parse, lambda data: timer.is_log_end(data, 0)),
        lambda: files("timer-5.5.0/store/timerlog/*", 208),
    ),
    "RocksDB keys": Target(
        each(consume_queue.parse_unit_key, consume_queue.parse_bound_key),
        lambda: [
            consume_queue.unit_key(b"Orders", 3, 7),
            consume_queue.bound_key(b"Orders", 3, consume_queue.ROCKS_MAX),
        ],
    ),
    "tiered index and names": Target(
        each(
            tiered.INDEX_HEADER.parse,
            tiered.INDEX_ITEM.parse,
            text(tiered.parse_segment_name),
            text(tiered.parse_cluster_name),
        ),
        lambda: (
            files("tieredstore-5.5.0/store/tiered_index_file/**/*", 128)
            + [path.name.encode() for path in sorted((FIXTURES / "tieredstore-5.5.0/store/tiered").rglob("*"))][:10]
        ),
    ),
    "EQueue message": Target(
        lambda data: equeue.CURRENT.parse(data, 4), lambda: files("equeue-*/store/message-chunks/*", 1200)
    ),
    "EQueue header, entry, id": Target(
        each(
            equeue.HEADER.parse,
            equeue.FOOTER.parse,
            equeue.QUEUE_ENTRY.parse,
            equeue.data_size,
            text(equeue.parse_id),
        ),
        lambda: [*files("equeue-*/store/queue-chunks/*/*/queue-chunk-*", 300), b"7F00000100001388000000000000002A"],
    ),
    "TFChunk record": Target(
        each(tfchunk.parse_record, lambda data: tfchunk.parse_record(data, 132)),
        lambda: files("tfchunk/*/store/chunk-*", 1500),
    ),
    "TFChunk header and footer": Target(
        each(tfchunk.HEADER.parse, tfchunk.parse_footer, text(tfchunk.parse_name)),
        lambda: [data[:128] for data in files("tfchunk/*/store/chunk-*")] + [b"chunk-000001.000002"],
    ),
    "message ids and hosts": Target(
        each(text(hosts.parse_offset_id), hosts.parse, text(hosts.parse_text)),
        lambda: [
            b"7F00000100002A9F0000000000000123",
            b"7F000001000078308DB14E25A1A80000",
            b"127.0.0.1:10911",
            bytes(8),
        ],
    ),
    "messages of services": Target(service, waiting),
    "SQL92": Target(text(sql92.Expression), sql),
    "remoting frames": Target(feed, requests),
    "registration": Target(
        each(*(register(compressed=way, version=version) for way in (False, True) for version in (400, 500))),
        registrations,
    ),
    "replication": Target(
        feed_transfer, lambda: [replication.TRANSFER.struct.pack(0, len(data)) + data for data in logs()[:4]]
    ),
    "HTTP head": Target(site.parse, request_heads, (site.BadRequestError,)),
    "plan": Target(_plan, plans),
}


def mutated(source: random.Random, pool: list[bytes]) -> bytes:
    """One input: a member of the corpus with one to three changes."""
    data = source.choice(pool)
    for _ in range(source.choice((1, 1, 2, 3))):
        chance = source.random()
        if not data:
            return source.choice(_TEXTS)
        if chance < 0.6:
            data = source.choice(KINDS)(source, data)
        elif chance < 0.85:
            data = _spliced(source, data, source.choice(_TEXTS))
        else:
            other = source.choice(pool)
            at, start = source.randrange(len(data)), source.randrange(len(other) or 1)
            data = data[:at] + other[start:]
    return data[:16384]


def _spliced(source: random.Random, data: bytes, piece: bytes) -> bytes:
    """A number of the text, or some bytes, become something else."""
    numbers = list(re.finditer(rb"-?\d+", data[:400]))
    if numbers and source.random() < 0.5:
        found = source.choice(numbers)
        return data[: found.start()] + piece + data[found.end() :]
    at = source.randrange(len(data))
    return data[:at] + piece + data[at + source.choice((0, 1, len(piece))) :]


@cache
def kept(name: str) -> tuple[bytes, ...]:
    """Inputs of a target that earlier runs have kept."""
    with zipfile.ZipFile(CORPUS) as archive:
        return tuple(archive.read(entry) for entry in sorted(archive.namelist()) if entry.startswith(f"{name}/"))


def keep(found: dict[str, list[bytes]]) -> None:
    """Adds inputs, by target, to those that are kept: small ones, and a limited number."""
    inputs = {name: [*kept(name)] for name in TARGETS}
    for name, new in found.items():
        inputs[name] += [data for data in new if len(data) <= _KEPT_SIZE][: _KEPT - len(inputs[name])]
    with zipfile.ZipFile(CORPUS, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, members in inputs.items():
            for number, data in enumerate(members):
                archive.writestr(zipfile.ZipInfo(f"{name}/{number:03d}"), data, zipfile.ZIP_DEFLATED)


def fuzz(name: str, inputs: int, seed: int) -> Tally:
    """Gives a target all that is kept for it, and then so many mutated inputs."""
    target, source, tally = TARGETS[name], random.Random(seed), Tally()
    first = kept(name)
    pool = [data for data in (*target.seeds(), *first) if data]
    assert pool
    seen: set[tuple[str, ...]] = set()
    begin = time.monotonic()
    for number in range(len(first) + inputs):
        data = first[number] if number < len(first) else mutated(source, pool)
        start = time.monotonic()
        ways: tuple[str, ...] = ()
        try:
            found = target.parse(data)
            ways = found if isinstance(found, tuple) else ()
        except target.errors as error:
            ways = (str(error),)
        except Exception as error:  # noqa: BLE001 - what is looked for
            tally.failures.setdefault(f"{type(error).__name__}: {error}"[:200], base64.b64encode(data).decode())
        taken = time.monotonic() - start
        tally.slowest = max(tally.slowest, taken)
        if taken > SECONDS:
            tally.failures.setdefault("takes too long", base64.b64encode(data).decode())
        way = tuple(re.sub(r"\d+|'.*'|b'.*'", "", str(text)[:_TOLD])[:80] for text in ways)
        tally.refused += any(way)
        if way not in seen and len(pool) < _POOL and number >= len(first):
            pool.append(data)
            tally.new.append(data)
        seen.add(way)
        tally.inputs += 1
    tally.seconds, tally.pool = time.monotonic() - begin, len(pool)
    return tally


@pytest.mark.parametrize("name", TARGETS)
def test_a_parser_returns_a_value_or_refuses(name):
    tally = fuzz(name, ROUNDS, seed=1)
    assert tally.failures == {}
    assert tally.inputs == ROUNDS + len(kept(name))


def test_inputs_are_kept_for_targets_that_there_are():
    with zipfile.ZipFile(CORPUS) as archive:
        names = {entry.rpartition("/")[0] for entry in archive.namelist()}
    assert names <= TARGETS.keys()
    assert len(names) > len(TARGETS) // 2


def _main() -> int:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("inputs", type=int, nargs="?", default=1000)
    arguments.add_argument("names", nargs="*", metavar="TARGET")
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--keep", action="store_true", help="add what ends in new ways to corpus.zip")
    given = arguments.parse_args()
    failed, new = False, {}
    for name in TARGETS:
        if given.names and name not in given.names:
            continue
        tally = fuzz(name, given.inputs, given.seed)
        new[name] = tally.new
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        print(
            f"{name}: {tally.inputs} inputs, {len(tally.failures)} kinds of failure, {tally.refused} refused, corpus "
            f"{tally.pool}, {tally.inputs / tally.seconds:.0f}/s, slowest {tally.slowest * 1000:.0f} ms, {memory} MiB",
            flush=True,
        )
        for kind, data in tally.failures.items():
            print(f"    {kind}\n        {data[:2000]}", flush=True)
        failed |= bool(tally.failures)
    if given.keep:
        keep(new)
    return int(failed)


if __name__ == "__main__":
    sys.exit(_main())
