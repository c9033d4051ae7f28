"""The conformance vector: twenty-five messages, and every byte that the real store makes of them (5.5's tags apart)."""

import struct

import pytest

from mqtool.engine import GetStatus, open_store
from mqtool.engine import dispatcher as dispatch
from mqtool.engine.write.messages import BatchMessage
from mqtool.formats import checkpoint, commit_log, hosts, properties
from mqtool.formats.consume_queue import tags_code
from mqtool.store.queues.by_time import Boundary
from tests.support.engine import HeldClock, open_small, small_options, tree

BORN = 1_700_000_000_100
START = 1_700_000_000_000
B4, S4 = hosts.parse_text("127.0.0.1:54321"), hosts.parse_text("192.168.1.10:10911")
B6, S6 = hosts.parse_text("[2001:db8::1]:1234"), hosts.parse_text("[2001:db8::2]:10911")
RETRY = "%RETRY%" + "x" * 123
SCHEDULE = "SCHEDULE_TOPIC_XXXX"

# topic, queue id, body, sys_flag, hosts, properties -> physical offset, size, queue offset
SINGLE = [
    (
        "TopicTest",
        1,
        b"hello",
        0,
        (B4, S4),
        [("KEYS", "k1 k2  k3"), ("TAGS", "TagA"), ("UNIQ_KEY", "7F0000010FA818B4AAC26C9E7A3B0000")],
        (0, 172, 0),
    ),
    ("TopicTest", 1, b"world", 0, (B4, S4), [("TAGS", "TagB")], (172, 115, 1)),
    ("TopicTest", 1, b"", 0, (B4, S4), [], (287, 100, 2)),
    ("TopicTest", 0, b"v6both", 0, (B6, S6), [("KEYS", "k6")], (387, 138, 0)),
    ("TopicTest", 0, b"v6born", 0, (B6, S4), [("KEYS", "k6b")], (525, 127, 1)),
    (RETRY, 0, b"long", 0, (B4, S4), [("KEYS", "kl")], (652, 234, 0)),
    (
        SCHEDULE,
        2,
        b"delay",
        0,
        (B4, S4),
        [("DELAY", "3"), ("REAL_TOPIC", "TopicTest"), ("REAL_QID", "1"), ("TAGS", "TagA")],
        (886, 165, 0),
    ),
    ("TopicTest", 1, b"prep", 4, (B4, S4), [("KEYS", "kp")], (1051, 112, 0)),
    ("TopicTest", 1, b"roll", 12, (B4, S4), [("KEYS", "kr")], (1163, 112, 0)),
    ("TopicTest", 1, b"comm", 8, (B4, S4), [("KEYS", "kc")], (1275, 112, 3)),
]
FILLED = [*[1774 + 392 * i for i in range(5)], *[4096 + 392 * i for i in range(5)], 6056, 6450]

QUEUE_1 = [
    (0, 172, 2598919),
    (172, 115, 2598920),
    (287, 100, 0),
    (1275, 112, 0),
    (1387, 129, 2670),
    (1516, 129, 2670),
    (1645, 129, 2670),
    (1774, 392, 2652),
    (2166, 392, 2653),
    (2558, 392, 2652),
    (2950, 392, 2653),
    (3342, 392, 2652),
    (4096, 392, 2653),
    (4488, 392, 2652),
    (4880, 392, 2653),
    (5272, 392, 2652),
    (5664, 392, 2653),
    (6056, 394, 2652),
    (6450, 394, 2653),
]

INDEX_1 = [
    (349785209, 0, 0),
    (2746024, 0, 0),
    (2746025, 0, 0),
    (2746026, 0, 0),
    (2746029, 387, 1),
    (85126997, 525, 0),
    (578412594, 652, 2),
    (2746087, 1051, 6),
    (2746074, 1275, 7),
    (85128311, 1387, 0),
    (85128312, 1516, 0),
    (85128313, 1645, 0),
    (2745868, 1774, 0),
    (26908034, 1774, 9),
    (2745869, 2166, 5),
    (26908034, 2166, 14),
    (2745870, 2558, 0),
    (26908034, 2558, 16),
    (2745871, 2950, 10),
]
SLOTS_1 = [17, 19, 11, 12, 18, 3, 4, 8, 13, 15]
INDEX_2 = [
    (26908034, 2950, 0),
    (2745872, 3342, 0),
    (26908034, 3342, 1),
    (2745873, 4096, 0),
    (26908034, 4096, 3),
    (2745874, 4488, 5),
    (26908034, 4488, 6),
    (2745875, 4880, 0),
    (26908034, 4880, 7),
    (2745876, 5272, 0),
    (26908034, 5272, 9),
    (2745877, 5664, 0),
    (26908034, 5664, 11),
    (85121987, 6056, 12),
    (26908034, 6056, 13),
    (85121988, 6450, 0),
    (26908034, 6450, 15),
]
SLOTS_2 = [0, 0, 2, 4, 17, 8, 10, 14, 16, 0]


def encoded(pairs):
    return properties.encode(pairs)


def put_all(store, clock):
    """Stores the vector's messages; every one a millisecond after the one before."""
    results = []
    for topic, queue_id, body, sys_flag, (born, stored), pairs, _ in SINGLE:
        clock.time += 1
        results.append(
            store.put(topic, queue_id, body, encoded(pairs), 0, sys_flag, BORN, hosts.build(born), hosts.build(stored))
        )
    clock.time += 1
    batch = [
        BatchMessage(b"b%d" % i, encoded([("KEYS", f"kb{i}"), ("WAIT", "true"), ("TAGS", "TB")])) for i in range(3)
    ]
    batched = store.put_batch(
        "TopicTest", 1, batch, born_timestamp=BORN, born_host=hosts.build(B4), store_host=hosts.build(S4)
    )
    filled = []
    for i in range(12):
        clock.time += 1
        pairs = [("KEYS", f"f{i} polygenelubricants"), ("TAGS", f"T{i % 2}")]
        filled.append(
            store.put(
                "TopicTest",
                1,
                f"fill-{i}-".encode() + b"x" * 250,
                encoded(pairs),
                0,
                0,
                BORN,
                hosts.build(B4),
                hosts.build(S4),
            )
        )
    return results, batched, filled


@pytest.fixture(params=[pytest.param(1 << 30, id="one by one"), pytest.param(1, id="in columns")])
def vector(request, tmp_path, monkeypatch):
    """What was put, and the store after it; without tags in the index, as in the release of the vector."""
    clock = HeldClock(START)
    with open_small(tmp_path / "store", clock, index_tags=False) as store:
        monkeypatch.setattr(dispatch, "FEWEST_IN_COLUMNS", request.param)
        put = put_all(store, clock)
        store.dispatch()
        yield put, store


def units_of(store, place, kind="consumequeue"):
    data = b"".join(tree(store.path / kind / place).values())
    return [unit for unit in struct.iter_unpack(">qiq", data) if unit != (0, 0, 0)]


def test_every_record_is_where_the_vector_says(vector):
    (results, batched, filled), _ = vector
    found = [(r.physical_offset, r.size, r.queue_offset) for r in results]
    assert found == [expected for *_, expected in SINGLE]
    assert (batched.physical_offsets, batched.size, batched.queue_offset) == ((1387, 1516, 1645), 387, 4)
    assert [r.physical_offset for r in filled] == FILLED
    assert [(r.size, r.queue_offset) for r in filled] == [(392, 7 + i) if i < 10 else (394, 7 + i) for i in range(12)]


def test_a_blank_runs_to_the_end_of_the_first_file(vector):
    _, store = vector
    data = (store.path / "commitlog" / "00000000000000000000").read_bytes()
    assert commit_log.FRAME.unpack_from(data, 3734) == (362, commit_log.MAGIC_BLANK)
    assert data[3742:] == bytes(4096 - 3742)


def test_the_record_of_the_worked_example_has_its_bytes(tmp_path):
    clock = HeldClock(1_700_000_000_123)
    with open_small(tmp_path / "store", clock) as store:
        store._components.offsets.state("TopicTest", 1).next_offset = 7
        pairs = [("KEYS", "k1"), ("TAGS", "TagA"), ("UNIQ_KEY", "7F0000010FA818B4AAC26C9E7A3B0000")]
        result = store.put("TopicTest", 1, b"hello", encoded(pairs), 0, 0, BORN, hosts.build(B4), hosts.build(S4))
        assert result.offset_message_id == "C0A8010A00002A9F0000000000000000"
        assert bytes(store.message_at(0)).hex() == (
            "000000a5daa320a73610a686000000010000000000000000000000070000000000000000000000000000018bcfe56864"
            "7f0000010000d4310000018bcfe5687bc0a8010a00002a9f0000000000000000000000000000000568656c6c6f"
            "09546f70696354657374003c4b455953016b310254414753015461674102554e49515f4b455901"
            + b"7F0000010FA818B4AAC26C9E7A3B0000".hex()
            + "02"
        )


def test_queue_units_are_the_vectors(vector):
    _, store = vector
    assert units_of(store, "TopicTest/1") == QUEUE_1
    assert units_of(store, "TopicTest/0") == [(387, 138, 0), (525, 127, 0)]
    assert units_of(store, f"{RETRY}/0") == [(652, 234, 0)]
    assert units_of(store, f"{SCHEDULE}/2") == [(886, 165, START + 7 + 10_000)]


def test_index_files_are_the_vectors(vector):
    _, store = vector
    one, two = tree(store.path / "index").values()
    at_3 = START + 15  # ten messages, the batch, then i = 3
    assert struct.unpack_from(">qqqqii", one) == (START + 1, at_3, 0, 2950, 10, 20)
    assert struct.unpack_from(">qqqqii", two) == (at_3, START + 23, 2950, 6450, 7, 18)
    assert list(struct.unpack_from(">10i", one, 40)) == SLOTS_1
    assert list(struct.unpack_from(">10i", two, 40)) == SLOTS_2
    for data, expected in ((one, INDEX_1), (two, INDEX_2)):
        entries = [struct.unpack_from(">iqii", data, 80 + 20 * n) for n in range(1, len(expected) + 1)]
        assert [(h, phy, prev) for h, phy, _, prev in entries] == expected
        assert [diff for _, _, diff, _ in entries] == [0] * len(expected)
        assert data[80:100] == bytes(20)


def test_the_checkpoint_knows_the_last_full_index_file(vector):
    _, store = vector
    store.close()
    found = checkpoint.parse((store.path / "checkpoint").read_bytes())
    assert found.index_msg_timestamp == START + 15
    assert found.logics_msg_timestamp == START + 23


def test_pulls_answer_as_the_vector_says(vector):
    _, store = vector
    pulls = [store.get_message("TopicTest", 1, offset) for offset in (0, 10, 18, 99, -1)]
    assert [(p.status.name, len(p.records), p.next_begin_offset) for p in pulls] == [
        ("FOUND", 10, 10),
        ("FOUND", 9, 19),
        ("FOUND", 1, 19),
        ("OFFSET_OVERFLOW_BADLY", 0, 19),
        ("OFFSET_TOO_SMALL", 0, 0),
    ]
    assert store.get_message("NoSuchTopic", 0, 0).status is GetStatus.NO_MESSAGE_IN_QUEUE
    assert store.offset_in_queue_by_time("TopicTest", 1, 0) == 0
    assert store.offset_in_queue_by_time("TopicTest", 1, (1 << 63) - 1, Boundary.LOWER) == 19
    assert store.query_message("TopicTest", "f3").physical_offsets == [2950]


def test_a_clean_stop_leaves_no_abort_and_no_file_made_ahead(tmp_path):
    with open_store(tmp_path / "store", small_options()) as store:
        for _ in range(15):
            assert store.put("TopicTest", 0, b"x" * 1000).ok
        store.dispatch()
        end = store.max_physical_offset
    names = sorted(tree(tmp_path / "store"))
    assert [n for n in names if n.startswith("commitlog/")] == [
        f"commitlog/{base:020d}" for base in range(0, end, 4096)
    ]
    assert [n for n in names if n.startswith("abort")] == ["abort.bak"]
    assert (tmp_path / "store" / "lock").read_bytes() == b"lock"


def test_tags_codes_are_javas():
    assert [tags_code(tag) for tag in ("TagA", "TagB", "TB", None)] == [2598919, 2598920, 2670, 0]
