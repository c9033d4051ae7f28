"""Columnar dispatch is held to a model that looks at one record at a time, and to real stores in tests/golden."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqtool.errors import UsageError
from mqtool.formats.release import V4_9, V5_5
from mqtool.formats.service_records import parse_delay_levels
from mqtool.records.dispatch import Dispatcher, DispatchRules, rules_for
from mqtool.records.frame_scan import scan_frames
from mqtool.records.frames import Frames
from mqtool.store.config.rules import delays_of
from tests.unit.rebuild import model
from tests.unit.rebuild.model import laid_out, record

pytestmark = pytest.mark.usefixtures("either_way")

words = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), max_size=24)
ascii_words = st.text("abz09 _%", min_size=1, max_size=40)
values = words | ascii_words
KNOWN = ("KEYS", "TAGS", "UNIQ_KEY", "DELAY", "WAIT", "KEYSX", "TAG", "UNIQ_KEYS", "INNER_NUM_", "")
piece = st.tuples(st.sampled_from(KNOWN), values)
numbers = st.integers(-3, 30).map(str) | st.sampled_from(["99999999999", "+5", "x", ""])
stored = st.lists(piece, max_size=6).map(
    lambda pairs: b"".join(name.encode() + b"\x01" + value.encode() + b"\x02" for name, value in pairs)
)
noise = st.binary(max_size=60) | st.lists(
    st.sampled_from([b"KEYS", b"\x01", b"\x02", b"a", b" ", b"\xff"]), max_size=20
).map(b"".join)
topics = st.sampled_from(
    ["T", "SCHEDULE_TOPIC_XXXX", "%RETRY%g", "rmq_sys_x", "DispatchBatch", "topic-of-some-length", "中文"]
)
records = st.builds(
    record,
    topics | st.text("ab", min_size=1, max_size=140),
    st.integers(-1, 3),
    st.integers(0, 9),
    props=stored | stored.map(lambda data: data[:-1]) | noise,
    body=st.binary(max_size=30),
    sys_flag=st.sampled_from([0, 0, 4, 8, 12, 0x10, 0x20, 0x30]),
    stored=st.integers(-5, 1 << 42),
)
lmq = st.builds(
    lambda names, offsets: {
        "INNER_MULTI_DISPATCH": ",".join(names),
        "INNER_MULTI_QUEUE_OFFSET": ",".join(offsets),
        "TAGS": "x",
    },
    st.lists(st.sampled_from(["%LMQ%a", "%LMQ%b", "plain", ""]), max_size=3),
    st.lists(st.sampled_from(["0", "7", "", "x"]), max_size=3),
)
batches = st.builds(
    record,
    st.just("DispatchBatch"),
    props=st.builds(
        lambda count, base: {"INNER_NUM": str(count), "INNER_BASE": str(base)}, st.integers(1, 99), st.integers(0, 99)
    ),
)
rare = st.builds(record, topics, st.integers(0, 2), props=lmq, sys_flag=st.sampled_from([0, 8, 12])) | batches


def frames_of(data, base=0):
    view = memoryview(data)
    chain = scan_frames(view, 0)
    frames = Frames(view, base, chain.positions, chain.sizes)
    assert frames.valid.all()
    assert chain.end == len(data)
    return frames


def unit_rows(dispatcher, units):
    topic = [dispatcher.topics.names[number] for number in units.topic]
    columns = (units.queue_id, units.queue_offset, units.physical_offset, units.size, units.tags_code, units.batch_size)
    return list(zip(topic, *(column.tolist() for column in columns), strict=True))


def key_rows(keys):
    return list(zip(keys.key_hash.tolist(), keys.physical_offset.tolist(), keys.store_timestamp.tolist(), strict=True))


def check(made, rules, dispatcher, base=0):
    data, placed = laid_out(made, base)
    found = dispatcher.dispatch(frames_of(data, base))
    assert unit_rows(dispatcher, found.units) == [unit for one in placed for unit in model.units_of(one, rules)]
    assert key_rows(found.keys) == [key for one in placed for key in model.keys_of(one, rules)]
    assert [dispatcher.topics.names[n] for n in found.topic] == [one.topic.decode("utf-8", "replace") for one in placed]


@pytest.mark.slow
@settings(max_examples=300)
@given(st.lists(records | rare, max_size=12), st.sampled_from([V4_9, V5_5]), st.integers(0, 1 << 40))
def test_units_and_keys_are_those_of_each_record(made, release, base):
    batch_topics = frozenset({"DispatchBatch"})
    rules = model.Rules(release == V5_5, release == V4_9, batch_topics)
    levels = model.LEVELS_MS
    dispatcher = Dispatcher(rules_for(release, multi_dispatch=True, delay_levels=levels, batch_topics=batch_topics))
    check(made, rules, dispatcher, base)
    check(made[::-1], rules, dispatcher, base)  # topics keep their numbers


def test_records_of_very_different_lengths_are_dispatched_alike():
    sizes = (1, 60, 700, 9000, 30000)
    keys = [{"KEYS": "k" * size, "TAGS": "é" * (size % 5), "UNIQ_KEY": f"u{size}"} for size in sizes]
    made = [record(f"t{n}", props=keys[n % 5 if n % 97 == 0 else 0], body=bytes(n)) for n in range(400)]
    check(made, model.Rules(), Dispatcher())


@pytest.mark.slow
def test_many_topics_and_long_ones_are_distinguished():
    made = [record(f"{'x' * (n % 250)}{n}", props={"KEYS": "k"}) for n in range(5000)]
    check(made, model.Rules(), Dispatcher())


def test_properties_stored_in_dozens_count_only_once_each_name():
    stored_twice = b"KEYS\x01a b\x02TAGS\x01x\x02KEYS\x01c\x02TAGS\x01yy\x02"
    check([record(props=stored_twice)] * 3, model.Rules(), Dispatcher())


def test_the_last_record_of_a_buffer_shorter_than_the_row_is_whole():
    check([record(props=b""), record("t" * 100, props=b"KEYS\x01" + b"k" * 900)], model.Rules(), Dispatcher())


def test_a_hash_that_java_cannot_make_positive_is_zero():
    assert model.java.string_hash("T#jllgvmc") == -(1 << 31)
    data, _ = laid_out([record(props={"KEYS": "jllgvmc"})])
    assert Dispatcher().dispatch(frames_of(data)).keys.key_hash.tolist() == [0]


def test_a_delay_level_that_is_no_number_is_reported_and_leaves_the_tag():
    data, placed = laid_out([record("SCHEDULE_TOPIC_XXXX", props={"DELAY": "soon", "TAGS": "TagA"})])
    found = Dispatcher().dispatch(frames_of(data))
    assert found.units.tags_code.tolist() == [2598919]
    (odd,) = found.oddities
    assert odd.physical_offset == placed[0].physical_offset
    assert "DELAY" in odd.detail


def test_lmq_offsets_that_do_not_fit_the_names_are_reported():
    made = [
        record(props={"INNER_MULTI_DISPATCH": "%LMQ%a,plain", "INNER_MULTI_QUEUE_OFFSET": "2,"}),
        record(props={"INNER_MULTI_DISPATCH": "plain,%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": ",0"}),
    ]
    dispatcher = Dispatcher()
    found = dispatcher.dispatch(frames_of(laid_out(made)[0]))
    assert [row[0] for row in unit_rows(dispatcher, found.units)] == ["T", "T"]
    assert len(found.oddities) == 2


def test_multi_dispatch_can_be_off():
    dispatcher = Dispatcher(DispatchRules(multi_dispatch=False))
    data, _ = laid_out([record(props={"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": "2"})])
    assert [row[0] for row in unit_rows(dispatcher, dispatcher.dispatch(frames_of(data)).units)] == ["T"]


def test_without_keys_there_are_none():
    data, _ = laid_out([record(props={"KEYS": "k"})])
    assert len(Dispatcher().dispatch(frames_of(data), keys=False).keys) == 0


def test_no_frames_give_no_units():
    found = Dispatcher().dispatch(Frames(memoryview(b""), 0, np.empty(0, np.int64), np.empty(0, np.int64)))
    assert (len(found.units), len(found.keys), len(found.topic)) == (0, 0, 0)


def test_delay_levels_are_read_as_the_broker_reads_them():
    assert delays_of(None, V4_9) == delays_of(None, V5_5) == model.LEVELS_MS
    assert parse_delay_levels("2s 1d") == (2000, 86_400_000)
    for wrong in ("5", "5x", "s", "1.5m", "9" * 5000 + "s", "9223372036854775807d"):
        with pytest.raises(UsageError, match="messageDelayLevel"):
            parse_delay_levels(wrong)
