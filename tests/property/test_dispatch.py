"""Dispatch as columns is held to dispatch of one record: on random, damaged and real records."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqtool.errors import FormatError
from mqtool.formats import codec, commit_log, java
from mqtool.formats.release import V4_9, V5_5
from mqtool.records.dispatch import Dispatcher, DispatchRequest, DispatchRules, key_hashes, queue_id_of, request_of
from mqtool.records.frames import Frames, frames_at
from tests.property import records as made_records
from tests.support.stores import FIXTURES
from tests.support.tiers import one_in

pytestmark = pytest.mark.usefixtures("either_way")

BATCH_TOPICS = frozenset({"Batch"})
NAMES = [
    "TAGS",
    "KEYS",
    "UNIQ_KEY",
    "DELAY",
    "INNER_MULTI_DISPATCH",
    "INNER_MULTI_QUEUE_OFFSET",
    "INNER_NUM",
    "INNER_BASE",
    "TAG",
    "KEYSX",
    "",
]
VALUES = [
    "",
    "a",
    "k1 k2",
    " k1  k2 ",
    "ü ключ",
    "3",
    "-1",
    "99",
    "x",
    "%LMQ%a",
    "%LMQ%a,p/q",
    "1,2",
    "0,",
    "\x01",
    "y\x01z",
]
TOPICS = [b"T", b"SCHEDULE_TOPIC_XXXX", b"%RETRY%g", b"rmq_sys_x", b"Batch", "中文".encode(), b"\xff\xfe", b""]


@st.composite
def records(draw):
    pairs = draw(st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES)), max_size=8))
    stored = b"".join(f"{name}\x01{value}\x02".encode() for name, value in pairs)
    for _ in range(draw(st.integers(0, 3))):  # mutated: a byte changed, cut or put in
        at = draw(st.integers(0, max(0, len(stored) - 1)))
        put = draw(st.sampled_from([b"", b"\x01", b"\x02", b"\x80", b" ", b"T"]))
        stored = stored[:at] + put + stored[at + draw(st.integers(0, 1)) :]
    sys_flag = draw(st.sampled_from([0, 0, 4, 8, 12, 0x10, 0x30]))
    return draw(st.sampled_from(TOPICS)), stored, sys_flag, draw(st.integers(-2, 9)), draw(st.integers(-5, 1 << 42))


RULES = st.builds(
    DispatchRules,
    index_tags=st.booleans(),
    multi_dispatch=st.booleans(),
    lmq_everywhere=st.booleans(),
    light_queues=st.booleans(),
    drops_paths=st.booleans(),
    delay_levels=st.sampled_from([(), (1000, 5000, 10000)]),
    batch_topics=st.sampled_from([frozenset(), BATCH_TOPICS]),
)


def log_of(made) -> bytes:
    data = bytearray()
    for topic, stored, sys_flag, queue_id, time in made:
        hosts = [bytes(20 if sys_flag & bit else 8) for bit in (0x10, 0x20)]
        heads = commit_log.HEADS[(sys_flag >> 4) & 3]
        fixed = {
            "magic_code": commit_log.MAGIC_V1,
            "queue_id": queue_id,
            "queue_offset": len(data) % 7,
            "physical_offset": len(data),
            "sys_flag": sys_flag,
            "store_timestamp": time,
            "born_host": hosts[0],
            "store_host": hosts[1],
        }
        head = codec.struct_of(heads)
        total = head.size + 1 + len(topic) + 2 + len(stored)
        fixed["total_size"] = total
        data += head.pack(*(fixed.get(field.name, 0) for field in heads))
        data += bytes([len(topic)]) + topic + commit_log.PROPERTIES_LENGTH.pack(len(stored)) + stored
    return bytes(data)


def units_of(request: DispatchRequest, rules: DispatchRules) -> list[tuple]:
    """The units of one record by the scalar form, as the engine writes them one by one."""
    if not request.is_queued:
        return []
    rest = (request.physical_offset, request.size, request.tags_code, request.store_timestamp)
    if request.topic in rules.batch_topics:
        return [(request.topic, request.queue_id, request.base_queue_offset, *rest, request.batch_size)]
    own = (request.topic, request.queue_id, request.queue_offset, *rest, 1)
    further = [
        (name, queue_id_of(name, request.queue_id, rules), offset, *rest, 1)
        for name, offset in request.further_queues(rules).queues
    ]
    return [own, *further]


def keys_of(request: DispatchRequest, rules: DispatchRules) -> list[tuple]:
    hashes = key_hashes(request.topic, request.properties, with_tags=rules.index_tags) if request.is_indexed else []
    return [(key, request.physical_offset, request.store_timestamp) for key in hashes]


def check(frames: Frames, rules: DispatchRules) -> int:
    """Compares both forms; returns how many records were compared."""
    requests = {}
    for row, position in enumerate(frames.positions.tolist()):
        try:
            requests[row] = request_of(commit_log.parse_record(frames.view, position), rules)
        except FormatError:  # a number that is none: the columns make what they can of such a record
            continue
    dispatcher = Dispatcher(rules)
    found = dispatcher.dispatch(frames)
    units = found.units
    names = [dispatcher.topics.names[number] for number in units.topic.tolist()]
    columns = (
        units.row,
        units.queue_id,
        units.queue_offset,
        units.physical_offset,
        units.size,
        units.tags_code,
        units.store_timestamp,
        units.batch_size,
    )
    rows = zip(names, *(column.tolist() for column in columns), strict=True)
    made = [(name, *rest) for name, row, *rest in rows if row in requests]
    assert made == [unit for request in requests.values() for unit in units_of(request, rules)]
    keys = found.keys
    columns = (keys.row, keys.key_hash, keys.physical_offset, keys.store_timestamp)
    made = [tuple(rest) for row, *rest in zip(*(column.tolist() for column in columns), strict=True) if row in requests]
    assert made == [key for request in requests.values() for key in keys_of(request, rules)]
    odd = {item.physical_offset for item in found.oddities}
    troubled = {r.physical_offset for r in requests.values() if r.is_queued and r.further_queues(rules).problem}
    in_batches = {r.physical_offset for r in requests.values() if r.topic in rules.batch_topics}
    assert troubled - in_batches <= odd
    return len(requests)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.lists(records(), max_size=12), RULES)
def test_columns_are_what_single_records_give(made, rules):
    view = memoryview(log_of(made))
    _, frames = frames_at(view, 0, 0)
    assert len(frames) == len(made)
    assert frames.valid.all()
    check(frames, rules)


@pytest.mark.parametrize("odd", one_in(2, ["", "\x7f", "é"]))
def test_properties_of_any_length_end_where_the_single_record_says(odd):
    """The compiled form reads 64 bytes at a time; these lengths put each end at every position of a block and beyond it."""
    for length in range(1, 140):
        word = ("k" * length)[: length - len(odd)] + odd
        spaced = " ".join(("a" * (length // 2), word))
        made = [
            (b"T", pairs.encode(), 0, 0, 1)
            for pairs in (
                f"KEYS\x01{word}\x02TAGS\x01x\x02",
                f"TAGS\x01{word}\x02KEYS\x01{spaced}\x02",
                f"{word}\x01v\x02UNIQ_KEY\x01{word}\x02",
                f"{word}\x02KEYS\x01{word}",
                f"TAGS\x01y\x02KEYS\x01{word}",
            )
        ]
        for log in (
            log_of(made),
            *(log_of([record]) for record in made),
        ):  # the last record of a buffer is read in another way
            _, frames = frames_at(memoryview(log), 0, 0)
            check(frames, DispatchRules(index_tags=True))


LARGEST = 16 << 20
SEGMENTS = sorted(
    path
    for path in FIXTURES.rglob("commitlog*/*")
    if path.name.isdigit() and len(path.name) == 20 and path.stat().st_size <= LARGEST
)


@pytest.mark.slow
def test_columns_are_what_single_records_of_every_fixture_give():
    compared = 0
    for path in SEGMENTS:
        data = path.read_bytes()
        _, frames = frames_at(memoryview(data), 0, int(path.name))
        frames = frames.select(frames.adds_up)
        for release in (V4_9, V5_5):
            is_new = release >= (5, 5)
            rules = DispatchRules(index_tags=is_new, lmq_everywhere=not is_new, batch_topics=BATCH_TOPICS)
            compared += check(frames, rules)
    assert compared > 10_000


def test_columns_of_changed_fixtures_are_what_single_records_give():
    random = np.random.default_rng(1)
    for path in SEGMENTS[:: max(1, len(SEGMENTS) // 12)]:
        data = bytearray(path.read_bytes())
        _, frames = frames_at(memoryview(bytes(data)), 0, int(path.name))
        for row in random.integers(0, len(frames), 200 if len(frames) else 0).tolist():
            start, length = int(frames.properties_start[row]), int(frames.properties_length[row])
            if length:
                data[start + int(random.integers(length))] = int(random.choice([1, 2, 32, 44, 0x80, 0x54]))
        _, frames = frames_at(memoryview(bytes(data)), 0, int(path.name))
        check(frames.select(frames.adds_up), DispatchRules(batch_topics=BATCH_TOPICS))


def test_a_key_whose_hash_java_cannot_negate_is_indexed_as_zero():
    rest = (java.INT_MIN - java.string_hash("T#" + 7 * "(")) % (1 << 32)
    key = "".join(chr(ord("(") + rest // 31**place % 31) for place in range(6, -1, -1))
    assert java.string_hash(f"T#{key}") == java.INT_MIN
    data, _ = made_records.log_of([{"topic": b"T", "properties": f"KEYS\1{key}".encode()}])
    _, frames = frames_at(memoryview(data), 0, 0)
    assert Dispatcher().dispatch(frames).keys.key_hash.tolist() == [0]
