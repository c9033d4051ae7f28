"""A scan has the rows of a full scan, however little of the log it reads."""

import dataclasses
import os
import shutil
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from mqtool.choices import Trust
from mqtool.errors import StoreError, UsageError
from mqtool.formats.commit_log import field_offset
from mqtool.records.damage import DamageKind
from mqtool.scan.messages import Options, Scan, scan
from mqtool.scan.reading import Zones
from mqtool.store import open_store
from tests.support.builder import FIRST_TIME, StoreBuilder, encode
from tests.support.damage import damage_case
from tests.support.native import FORMS, form
from tests.support.questions import committed, moment, questions
from tests.support.stores import STORES, answers, copy_store
from tests.support.tiers import one_in

F = pc.field
ALL = ("queues", "index", "clock")


def offsets(found):
    return [value for batch in found for value in batch["physical_offset"].to_pylist()]


def built(tmp_path, **changes):
    builder = StoreBuilder(**changes)
    for number in range(600):
        builder.put(
            b"x" * 300,
            topic=f"T{number % 7}",
            queue_id=number % 3,
            keys=f"k{number} all",
            unique_key=f"u{number}",
            tags="ab"[number % 2],
        )
    return builder, builder.write(tmp_path / "store")


def patch(path, position, data):
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


# each kind of layout once
NAMES = [
    store.name
    for store in STORES
    if store.directory is not None and not store.name.startswith(("bcq", "propcrc", "equeue", "tfchunk"))
]


@pytest.mark.parametrize("name", one_in(4, NAMES))
def test_twelve_questions_have_the_answers_of_a_full_scan(name, tmp_path):
    with open_store(copy_store(name, tmp_path)) as store:
        messages = committed(store)
        if not messages:
            pytest.skip("no committed message")
        zones = Zones()
        for question in questions(messages):
            expected = [m.physical_offset for m in messages if question.matches(m)]
            for trust in ((), ALL):
                found = scan(store, ["physical_offset"], question.where, trust=trust)
                assert offsets(found) == expected, (question.name, trust, found.report)
            assert offsets(Scan(store, ["physical_offset"], question.where, zones=zones)) == expected, question.name


@pytest.mark.parametrize(
    "case",
    [
        "old-flip-body@4.9.7-clean",
        "flip-size@4.9.7-clean",
        "segment-missing-middle@4.9.7-clean",
        "old-zero-segment@4.9.7-clean",
        "cq-hole-old@4.9.7-clean",
        "cq-wrong-target@5.5.0-clean",
        "index-all-unsafe@4.9.7-crash",
    ],
)
def test_damage_stays_visible_and_hides_no_row(case, tmp_path):
    with open_store(damage_case(case, tmp_path)) as store:
        messages = committed(store)
        walked = [item for item in store.messages() if not hasattr(item, "topic")]
        zones = Zones()
        for question in questions(messages):
            found = Scan(store, ["physical_offset"], question.where, zones=zones)
            assert offsets(found) == [m.physical_offset for m in messages if question.matches(m)], question.name
            if found.report.path == "walk" and question.name != "place":
                assert found.report.damage == walked


@pytest.mark.parametrize("compiled", FORMS)
def test_bodies_are_trusted_where_none_is_needed(compiled, tmp_path):
    with form(compiled=compiled), open_store(damage_case("old-flip-body@4.9.7-clean", tmp_path)) as store:
        (damage,) = [item for item in store.messages() if not hasattr(item, "topic")]
        intact = [message.physical_offset for message in committed(store)]
        for columns in (["physical_offset", "topic"], ["physical_offset", "tags"]):
            trusting = scan(store, columns, trust=["bodies"])
            assert offsets(trusting) == sorted([*intact, damage.start])
            assert (trusting.report.damage, "CRCs" in trusting.report.why) == ([], True)
        for columns, trust in ((["physical_offset", "body"], ["bodies"]), (["physical_offset", "topic"], [])):
            checking = scan(store, columns, trust=trust)
            assert offsets(checking) == intact
            assert (checking.report.damage, "CRCs" in checking.report.why) == ([damage], False)


@pytest.mark.parametrize("compiled", FORMS)
def test_bodies_of_an_intact_segment_are_checked_once_by_scans_that_check_them(compiled, tmp_path):
    builder, path = built(tmp_path)
    first, put = min((path / "commitlog").iterdir()), builder.puts[3]
    before = first.stat()
    zones, fresh = Zones(), Zones()

    def damaged(zones, trust=()):
        with form(compiled=compiled), open_store(path) as store:
            found = Scan(store, ["queue_id"], options=Options(trust=frozenset(trust)), zones=zones)
            assert sum(map(len, found)) + len(found.report.damage) == len(builder.puts)
            return [damage.start for damage in found.report.damage]

    assert damaged(zones) == []
    patch(first, put.physical_offset + field_offset("body_length") + 4, b"y")
    os.utime(first, ns=(before.st_atime_ns, before.st_mtime_ns))  # a segment that looks as it did
    assert damaged(zones) == []
    assert damaged(fresh, [Trust.BODIES]) == []
    assert damaged(fresh) == damaged(fresh) == [put.physical_offset]


@pytest.mark.parametrize("name", ["bcq-5.5.0", "propcrc-5.5.0"])
def test_messages_of_inner_batches_are_found_one_by_one(name, tmp_path):
    with open_store(copy_store(name, tmp_path)) as store:
        every = pa.Table.from_batches(list(scan(store)))
        keys = every["unique_key"].to_pylist()
        for where in (F("unique_key") == keys[3], F("queue_offset") == 2, F("topic") == every["topic"][0].as_py()):
            expected = every.filter(where)
            assert expected.num_rows
            for trust in ((), ALL):
                found = scan(store, where=where, trust=trust)
                assert pa.Table.from_batches(list(found), found.schema).equals(expected)


def test_a_clock_that_is_set_back_loses_no_row(tmp_path):
    builder = StoreBuilder()
    for number in range(300):
        builder.put(b"x" * 200, step=-20_000 if number == 120 else 100)
    path = builder.write(tmp_path / "store")
    early = FIRST_TIME + 5_000
    expected = [put.physical_offset for put in builder.puts if put.store_timestamp < early]
    assert expected != sorted(expected) or expected[-1] > builder.puts[119].physical_offset
    where = F("store_timestamp") < moment(early)
    with open_store(path) as store:
        zones = Zones()
        for _ in range(2):  # the second knows what the first has seen
            assert offsets(Scan(store, ["physical_offset"], where, zones=zones)) == expected
        trusting = scan(store, ["physical_offset"], where, trust=["clock"])
        assert offsets(trusting) == expected
        assert "go backwards" in trusting.report.why


def test_records_of_a_topic_that_was_created_again_are_found(tmp_path):
    builder, path = built(tmp_path)
    expected = [put.physical_offset for put in builder.puts if put.topic == "T1"]
    shutil.rmtree(path / "consumequeue" / "T1" / "0")
    with open_store(path) as store:
        assert offsets(scan(store, ["physical_offset"], F("topic") == "T1")) == expected
        assert len(offsets(scan(store, ["physical_offset"], F("topic") == "T1", trust=["queues"]))) < len(expected)


@pytest.mark.parametrize("harm", ["hole", "backwards", "no file"])
def test_a_queue_that_contradicts_itself_is_not_followed(harm, tmp_path):
    builder, path = built(tmp_path, queue_file_units=10)
    expected = [put.physical_offset for put in builder.puts if put.topic == "T1"]
    files = sorted((path / "consumequeue" / "T1" / "1").iterdir())
    data = bytearray(files[1].read_bytes())
    if harm == "hole":
        data[40:60] = bytes(20)
        files[1].write_bytes(data)
    elif harm == "backwards":
        data[40:60], data[60:80] = data[60:80], data[40:60]
        files[1].write_bytes(data)
    else:
        files[1].unlink()
    with open_store(path) as store:
        found = scan(store, ["physical_offset"], F("topic") == "T1", trust=["queues"])
        assert offsets(found) == expected
        assert found.report.path == "walk"


@pytest.mark.parametrize(
    ("harm", "kind", "words"),
    [
        ("size past the segment", DamageKind.BAD_HEADER, "a unit states more bytes than the segment has"),
        ("size of no record", DamageKind.BAD_HEADER, "no record where a unit states one"),
        ("body", DamageKind.BAD_CRC, "the body's CRC differs from the stored one"),
        ("cut", DamageKind.MISSING, "the file ends inside this record"),
    ],
)
def test_a_unit_that_leads_to_no_sound_record_is_damage_and_hides_no_other_row(harm, kind, words, tmp_path):
    builder, path = built(tmp_path)
    named = [put for put in builder.puts if put.topic == "T1" and put.queue_id == 1]
    last = named[-1]
    segment = path / "commitlog" / f"{max(base for base in builder.segments if base <= last.physical_offset):020}"
    queue = max((path / "consumequeue" / "T1" / "1").iterdir())
    size = {"size past the segment": builder.segment_size, "size of no record": last.size - 1}.get(harm, last.size)
    at = len(named) % builder.queue_file_units * 20 - 12
    patch(queue, at, size.to_bytes(4, "big"))
    if harm == "body":
        patch(segment, last.physical_offset - int(segment.name) + 100, b"?")
    with open_store(path) as store:
        assert store.commit_log.max_offset == builder.end
        if harm == "cut":  # after it was opened
            os.truncate(segment, last.physical_offset - int(segment.name) + 50)
        where = (F("topic") == "T1") & (F("queue_id") == 1)
        found = scan(store, ["physical_offset"], where, trust=["queues"])
        assert offsets(found) == [put.physical_offset for put in named[:-1]]
        assert found.report.path == "queues"
        assert [(one.kind, one.detail, one.path, one.start) for one in found.report.damage] == [
            (kind, words, segment, last.physical_offset)
        ]


def test_a_record_inside_the_body_of_another_is_no_row_though_an_index_entry_names_it(tmp_path):
    """Index entries may be left of a record that a later one contains; the scan looks from the start of the segment."""
    inner = encode(0, b"inner", topic=b"T", properties=b"UNIQ_KEY\1inside\2")
    builder = StoreBuilder()
    builder.put(b"first", topic="T", unique_key="u0")
    outer = builder.put(b"<" + inner + b">", topic="T", unique_key="u1")
    position = outer.data.index(inner)
    data = encode(outer.physical_offset + position, b"inner", topic=b"T", properties=b"UNIQ_KEY\1inside\2")
    builder = StoreBuilder()
    builder.put(b"first", topic="T", unique_key="u0")
    outer = builder.put(b"<" + data + b">", topic="T", unique_key="u1")
    at = outer.physical_offset + position
    builder.puts.append(dataclasses.replace(outer, physical_offset=at, size=len(data), unique_key="inside"))
    stores = [builder.write(tmp_path / "last", queues=False)]
    builder.put(b"after", topic="T", unique_key="u2")
    stores.append(builder.write(tmp_path / "between", queues=False))
    for path in stores:
        with open_store(path) as store:
            for key, expected in (("inside", []), ("u1", [outer.physical_offset])):
                where = (F("topic") == "T") & (F("unique_key") == key)
                found = scan(store, ["physical_offset"], where, trust=["index"])
                assert (offsets(found), found.report.path) == (expected, "index")


def test_a_record_with_a_damaged_body_that_the_index_names_is_damage(tmp_path):
    builder, path = built(tmp_path)
    put = builder.puts[300]
    base = put.physical_offset // builder.segment_size * builder.segment_size
    patch(path / "commitlog" / f"{base:020}", put.physical_offset - base + 100, b"?")
    with open_store(path) as store:
        found = scan(store, ["physical_offset"], F("unique_key") == "u300", trust=["index"])
        assert (offsets(found), found.report.path) == ([], "index")
        assert [(one.kind, one.start, one.end) for one in found.report.damage] == [
            (DamageKind.BAD_CRC, put.physical_offset, put.end)
        ]
    patch(path / "commitlog" / f"{base:020}", put.physical_offset - base + 4, b"?")
    with open_store(path) as store:  # no record: the entry may have outlived it
        found = scan(store, ["physical_offset"], F("unique_key") == "u300", trust=["index"])
        assert (offsets(found), found.report.path, found.report.damage) == ([], "index", [])


def test_a_unit_that_leads_to_a_missing_segment_is_damage(tmp_path):
    builder, path = built(tmp_path)
    named = [put for put in builder.puts if put.topic == "T1" and put.queue_id == 1]
    lost = [put for put in named if put.physical_offset // builder.segment_size == 3]
    assert lost
    (path / "commitlog" / f"{3 * builder.segment_size:020}").unlink()
    with open_store(path) as store:
        found = scan(store, ["physical_offset"], (F("topic") == "T1") & (F("queue_id") == 1), trust=["queues"])
        assert offsets(found) == [put.physical_offset for put in named if put not in lost]
        assert found.report.path == "queues"
        assert [(one.kind, one.detail, one.start, one.end) for one in found.report.damage] == [
            (DamageKind.MISSING, "no segment contains the record that a unit names", put.physical_offset, put.end)
            for put in lost
        ]


def test_a_hole_of_a_trusted_index_is_scanned(tmp_path):
    root = copy_store("orders-5.5.0", tmp_path)
    with open_store(root) as store:
        keys = [one.unique_key for one in store.messages(topics=["Orders"]) if one.unique_key]
    files = sorted((root / "index").iterdir())
    for missing in (files[0], files[4], files[-1]):
        missing.unlink()
    with open_store(root) as store:
        for key in keys[::10]:
            walked, found = (
                scan(store, ["physical_offset"], F("unique_key") == key, trust=trust) for trust in ((), ["index"])
            )
            assert (offsets(walked), walked.report.path) == (offsets(found), "walk")
            assert (len(offsets(found)), found.report.path) == (1, "index")


def test_trust_in_an_index_that_is_missing_is_a_walk(tmp_path):
    builder = StoreBuilder()
    builder.put(unique_key="u0")
    with open_store(builder.write(tmp_path / "store", index=False)) as store:
        found = scan(store, ["physical_offset"], F("unique_key") == "u0", trust=["index"])
        assert (offsets(found), found.report.path, found.report.why) == ([0], "walk", "there is no index")


def test_queues_without_units_are_followed(tmp_path):
    """A queue whose files were deleted, and one whose last file was created and not written yet."""
    builder, path = built(tmp_path, queue_file_units=10)
    queues = path / "consumequeue" / "T1"
    (queues / "9").mkdir()
    last = max((queues / "1").iterdir())
    (queues / "1" / f"{int(last.name) + 200:020}").write_bytes(bytes(200))
    with open_store(path) as store:
        found = scan(store, ["physical_offset"], F("topic") == "T1", trust=["queues"])
        assert offsets(found) == [put.physical_offset for put in builder.puts if put.topic == "T1"]
        assert found.report.path == "queues"


@pytest.mark.parametrize("damaged", [False, True], ids=["intact", "damaged"])
def test_a_time_is_found_within_a_large_segment(damaged, tmp_path):
    """Ten messages of 100 KB with each store time, so that bisection ends on equal times too."""
    builder = StoreBuilder(segment_size=5 << 20)
    for number in range(40):
        builder.put(b"x" * 100_000, topic=f"T{number % 2}", step=1000 * (number % 10 == 0))
    path = builder.write(tmp_path / "store", queues=not damaged)
    lost = builder.puts[20] if damaged else None
    if lost is not None:
        patch(path / "commitlog" / f"{0:020}", lost.physical_offset + 4, bytes(4))
    with open_store(path) as store:
        for time in sorted({put.store_timestamp + more for put in builder.puts for more in (-1, 0, 1)}):
            for where, matches in (
                (F("store_timestamp") >= moment(time), lambda put, time=time: put.store_timestamp >= time),
                (F("store_timestamp") <= moment(time), lambda put, time=time: put.store_timestamp <= time),
                (F("store_timestamp") == moment(time), lambda put, time=time: put.store_timestamp == time),
            ):
                found = scan(store, ["physical_offset"], where, trust=["clock"])
                assert offsets(found) == [put.physical_offset for put in builder.puts if matches(put) and put != lost]


def test_each_path_reads_less_than_a_walk(tmp_path):
    _, path = built(tmp_path, segment_size=1 << 15)
    asked = {
        "queues": (F("topic") == "T1") & (F("queue_id") == 2) & (F("queue_offset") < 5),
        "index": F("unique_key") == "u300",
    }
    with open_store(path) as store:
        walked = scan(store, ["topic"])
        list(walked)
        assert walked.report.bytes_read >= walked.report.bytes_needed > 100_000
        for name, where in asked.items():
            found = scan(store, ["topic"], where, trust=ALL)
            assert sum(map(len, found)) > 0
            assert found.report.path == name
            assert found.report.segments_skipped > 0
            assert found.report.bytes_read * 2 < walked.report.bytes_read


def test_alternatives_and_tags_are_read_by_what_names_them(tmp_path):
    _, path = built(tmp_path, segment_size=1 << 15)
    topic, key, tag = F("topic") == "T1", F("unique_key") == "u300", F("tags") == "a"
    asked = [
        (topic | key, "index and queues"),
        (key | F("unique_key").isin(["u2", "u599"]), "index"),
        ((topic & (F("queue_offset") < 5)) | ((F("topic") == "T3") & tag), "queues"),
        ((topic | key) & ((F("queue_id") == 1) | key), "index and queues"),
        (tag & (F("queue_id") == 1), "queues"),
        (F("tags").isin(["a", "b"]), "walk"),  # the whole log
        (topic | (F("flag") == 1), "walk"),
        (topic | key | F("topic").isin(["T2", "T3", "T4", "T5"]), "walk"),
        (topic | key | (F("topic") == "T2") | (F("topic") == "T3") | (F("topic") == "T4"), "walk"),
    ]
    with open_store(path) as store:
        every = pa.Table.from_batches(list(scan(store)))
        for where, name in asked:
            found = scan(store, ["physical_offset"], where, trust=ALL)
            assert offsets(found) == every.filter(where)["physical_offset"].to_pylist(), where
            assert found.report.path == name, (where, found.report)
            if name != "walk":
                assert found.report.bytes_read < 2 * found.report.bytes_needed + (1 << 15)


@pytest.mark.parametrize("name", ["cqext-5.5.0", "cqext-4.9.7", "timer-5.5.0", "txbits-4.9.7"])
def test_tags_of_queues_with_other_codes_lose_no_row(name, tmp_path):
    """Codes that are addresses in ConsumeQueueExt, or times at which a delayed message is due."""
    with open_store(copy_store(name, tmp_path)) as store:
        every = pa.Table.from_batches(list(scan(store, every_class=True)))
        for tag in {*every["tags"].to_pylist()} - {None} | {"missing"}:
            where = F("tags") == tag
            found = scan(store, ["physical_offset"], where, trust=ALL, every_class=True)
            assert offsets(found) == every.filter(where)["physical_offset"].to_pylist(), (tag, found.report)


CLASSES = ["committed", "half", "rolled-back", "system"]


@pytest.mark.parametrize(
    ("classes", "path"),
    [
        (None, "walk"),
        (["committed"], "queues"),
        (["committed", "system"], "queues"),
        (CLASSES, "walk"),
        (["half"], "walk"),
    ],
)
def test_queues_are_used_only_for_records_that_have_units(tmp_path, classes, path):
    """The broker gives half and rolled-back records no unit."""
    where = (F("topic") == "TxBits") & (F("queue_id") == 1)
    where = where if classes is None else where & F("record_class").isin(classes)
    with open_store(copy_store("txbits-4.9.7", tmp_path)) as store:
        every = pa.Table.from_batches(list(scan(store, every_class=True)))
        found = scan(store, ["physical_offset"], where, trust=["queues"], every_class=True)
        assert offsets(found) == every.filter(where)["physical_offset"].to_pylist()
        assert found.report.path == path
        assert ("record_class" in found.report.why) == (path == "walk")


def test_queues_have_all_committed_records(tmp_path):
    where = (F("topic") == "TxBits") & (F("queue_id") == 1)
    with open_store(copy_store("txbits-4.9.7", tmp_path)) as store:
        every = pa.Table.from_batches(list(scan(store)))
        found = scan(store, ["physical_offset"], where, trust=["queues"])
        assert offsets(found) == every.filter(where)["physical_offset"].to_pylist()
        assert found.report.path == "queues"


@pytest.mark.parametrize(
    ("classes", "path"), [(None, "walk"), (["rolled-back"], "walk"), (["committed", "half"], "index")]
)
def test_an_index_is_used_only_for_records_that_have_entries(tmp_path, classes, path):
    """The broker does not index rolled-back records."""
    where = F("key").isin(["x0", "x4", "x12"])
    where = where if classes is None else where & F("record_class").isin(classes)
    with open_store(copy_store("txbits-4.9.7", tmp_path)) as store:
        every, found = (
            Scan(store, ["physical_offset"], where, Options(every_class=True, keyed=True, trust=frozenset(trust)))
            for trust in ((), ("index",))
        )
        expected = offsets(every)
        assert len(expected) > 5
        assert offsets(found) == expected
        assert found.report.path == path


def test_a_second_scan_skips_segments_that_the_first_has_seen(tmp_path):
    builder, path = built(tmp_path)
    late = builder.puts[-10].store_timestamp
    with open_store(path) as store:
        zones = Zones()
        first, second = (Scan(store, ["topic"], F("store_timestamp") >= moment(late), zones=zones) for _ in range(2))
        assert [batch.to_pylist() for batch in first] == [batch.to_pylist() for batch in second]
        assert first.report.segments_skipped == 0
        assert second.report.segments_skipped > 5
        assert second.report.bytes_read * 3 < first.report.bytes_read


def test_a_keyed_scan_has_a_row_for_each_key(tmp_path):
    builder, path = built(tmp_path)
    with open_store(path) as store:
        every = Scan(store, ["key", "physical_offset"], options=Options(keyed=True))
        assert sum(map(len, every)) == 1200
        for trust in ((), ("index",)):
            found = Scan(
                store, ["physical_offset", "key"], F("key") == "k77", Options(keyed=True, trust=frozenset(trust))
            )
            assert [batch.to_pylist() for batch in found] == [
                [{"physical_offset": builder.puts[77].physical_offset, "key": "k77"}]
            ]


def test_a_limit_ends_the_reading(tmp_path):
    _, path = built(tmp_path)
    with open_store(path) as store:
        found = scan(store, ["topic"], limit=5)
        assert sum(map(len, found)) == 5
        assert found.report.segments_skipped > 0


def test_a_limit_ends_between_batches(tmp_path):
    _, path = built(tmp_path)
    with open_store(path) as store:
        found = Scan(store, ["body"], options=Options(limit=10, batch_rows=5))
        assert [len(batch) for batch in found] == [5, 5]


def test_an_unknown_column_is_named(tmp_path):
    _, path = built(tmp_path)
    with open_store(path) as store, pytest.raises(UsageError, match="unknown column 'tpoic'; known: broker, "):
        scan(store, ["tpoic"])


@pytest.mark.parametrize(
    "where",
    [
        F("queue_offset").cast("int32", safe=False) == 3,
        F("store_timestamp").cast(pa.timestamp("s", "UTC"), safe=False)
        == pa.scalar(FIRST_TIME // 1000, pa.timestamp("s", "UTC")),
        pc.if_else(F("queue_id") == 1, F("topic") == "T1", F("topic") == "T2"),
        pc.xor(F("topic") == "T1", F("queue_id") == 1),
        F("topic").is_null() | (F("queue_offset") >= 20),
        pc.scalar(3) > F("queue_offset"),
        pc.starts_with(F("topic"), "T1"),
        pc.scalar(True),
        F("queue_offset") * 2 == 6,
        F("queue_offset") > 1.5,
        F("topic") == F("tags"),
        F("topic") == pa.scalar(None, pa.string()),
        F("store_timestamp") > pa.scalar(FIRST_TIME * 1_000_000 + 300_000_000, pa.timestamp("ns", "UTC")),
        (F("queue_offset") < 3) | (F("queue_offset") >= 27),
        ((F("queue_id") > 5) & (F("queue_id") < 3)) | (F("queue_id") == 1),
        F("store_timestamp").isin([moment(FIRST_TIME + 3), moment(FIRST_TIME + 500)]),
        F("queue_id") == pc.scalar((1 << 32) + 1).cast("int32", safe=False),
        F("queue_offset").cast("uint64", safe=False) == pa.scalar(3, pa.uint64()),
        F("queue_offset").isin([1.0, 2.5]),
        F("body_decoded"),
    ],
    ids=str,
)
def test_any_condition_has_the_rows_that_arrow_finds(where, tmp_path):
    _, path = built(tmp_path)
    with open_store(path) as store:
        every = pa.Table.from_batches(list(scan(store)))
        found = scan(store, ["physical_offset"], where, trust=ALL)
        assert offsets(found) == every.filter(where)["physical_offset"].to_pylist()


def test_a_cast_that_changes_the_value_excludes_no_row(tmp_path):
    builder = StoreBuilder()
    for number in range(4):
        builder.put(queue_offset=(1 << 32) + number)
    narrowed = F("queue_offset").cast("int32", safe=False)
    with open_store(builder.write(tmp_path / "store")) as store:
        for value in (narrowed, narrowed.cast("int64", safe=False)):
            found = scan(store, ["physical_offset"], value.cast("int64", safe=False) == 3)
            assert offsets(found) == [builder.puts[3].physical_offset]


def test_null_in_a_list_matches_messages_without_a_value(tmp_path):
    """Arrow matches null with null in `isin`, so neither tags code nor index entry names all rows."""
    builder = StoreBuilder()
    for number in range(60):
        tagged = number % 3 == 0
        builder.put(topic=f"T{number % 5}", tags="a" * tagged, unique_key=f"u{number}" * tagged)
    path = builder.write(tmp_path / "store")
    none = [put.physical_offset for put in builder.puts if not put.tags]
    with open_store(path) as store:
        keyed = F("unique_key").isin(["u3", None])
        assert offsets(scan(store, ["physical_offset"], keyed, trust=ALL)) == sorted(
            [builder.puts[3].physical_offset, *none]
        )
        tagged = (F("topic") == "T1") & F("tags").isin([None, "b"])
        assert offsets(scan(store, ["physical_offset"], tagged, trust=ALL)) == [
            put.physical_offset for put in builder.puts if put.topic == "T1" and not put.tags
        ]


def test_a_search_by_time_does_not_read_the_unused_rest_of_the_last_segment(tmp_path):
    builder = StoreBuilder(segment_size=4 << 20)
    for _ in range(30):
        builder.put(b"x" * 100_000)
    path = builder.write(tmp_path / "store")
    os.truncate(path / "commitlog" / f"{0:020}", 64 << 20)
    with open_store(path) as store:
        where = F("store_timestamp") >= moment(builder.puts[29].store_timestamp)
        found = scan(store, ["physical_offset"], where, trust=["clock"])
        assert offsets(found) == [builder.puts[29].physical_offset]
        assert found.report.bytes_read < 3 * builder.end


def test_zones_of_single_times_and_of_many_topics(tmp_path):
    builder = StoreBuilder(segment_size=1 << 20)
    for number in range(2500):
        builder.put(b"x" * 400, topic=f"many-{number}")
    path = builder.write(tmp_path / "store", queues=False, index=False)
    zones = Zones()
    with open_store(path) as store:
        assert len(store.commit_log.segments) == 2
        for where, expected in (
            (F("topic") == "many-7", [builder.puts[7]]),
            (F("topic") == "many-8", [builder.puts[8]]),
            (F("store_timestamp") == moment(builder.puts[9].store_timestamp), [builder.puts[9]]),
            (F("store_timestamp") == moment(builder.puts[-9].store_timestamp), [builder.puts[-9]]),
        ):
            found = Scan(store, ["physical_offset"], where, zones=zones)
            assert offsets(found) == [put.physical_offset for put in expected]
        assert found.report.segments_skipped == 1


def test_a_segment_that_is_deleted_between_two_scans_is_named(tmp_path):
    builder, path = built(tmp_path)
    zones = Zones()
    with open_store(path) as store:
        list(Scan(store, ["topic"], F("topic") == "T1", zones=zones))
    with open_store(path) as store:
        segment = path / "commitlog" / f"{builder.segment_size:020}"
        segment.unlink()
        with pytest.raises(StoreError, match=f"{segment.name}: cannot be opened"):
            list(Scan(store, ["topic"], F("topic") == "none", zones=zones))


def test_times_outside_the_calendar_are_null_among_plain_columns(tmp_path):
    builder = StoreBuilder()
    builder.put()
    builder.put(born_timestamp=1 << 60)
    with open_store(builder.write(tmp_path / "store")) as store:
        rows = [row for batch in scan(store, ["physical_offset", "born_timestamp"]) for row in batch.to_pylist()]
    assert rows == [
        {"physical_offset": 0, "born_timestamp": datetime.fromtimestamp(FIRST_TIME / 1000, UTC)},
        {"physical_offset": builder.puts[1].physical_offset, "born_timestamp": None},
    ]


def test_plain_columns_of_inner_batches_have_a_row_for_each_message(tmp_path):
    with open_store(copy_store("bcq-5.5.0", tmp_path)) as store:
        every = pa.Table.from_batches(list(scan(store))).select(["topic", "queue_offset"])
        plain = pa.Table.from_batches(list(scan(store, ["topic", "queue_offset"])))
    messages = [line for line in answers("bcq-5.5.0", "batchqueue") if line["kind"] == "unit"]
    assert plain.num_rows > len(messages) > 0
    assert plain.to_pylist() == every.to_pylist()


def test_columns_that_are_fields_are_those_of_an_export(tmp_path):
    """Compiled and not, with system records, transactions and unusual topics among the others."""
    names = [
        "topic",
        "broker",
        "queue_offset",
        "store_timestamp",
        "born_timestamp",
        "sys_flag",
        "body_crc",
        "store_size",
    ]
    builder = StoreBuilder()
    for number in range(400):
        topic = ["T", "Tö", "%RETRY%g", "SCHEDULE_TOPIC_XXXX", f"many-{number}"][number % 5]
        builder.put(topic=topic, queue_id=number % 3, sys_flag=[0, 4, 8, 12][number // 3 % 4])
    path = builder.write(tmp_path / "store")
    for every_class in (False, True):
        for where in (None, F("queue_id") == 1, F("topic") == "Tö", F("store_timestamp") > moment(FIRST_TIME + 99)):
            found = []
            for compiled in FORMS:
                with form(compiled=compiled), open_store(path) as store:
                    plain = pa.Table.from_batches(list(scan(store, names, where, every_class=every_class)))
                    whole = pa.Table.from_batches(list(scan(store, [*names, "flag"], where, every_class=every_class)))
                assert plain.num_rows
                assert plain.equals(whole.select(names))
                found.append(plain)
            assert found[0].equals(found[-1])
