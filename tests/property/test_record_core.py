"""The rules of the record core, each in its scalar and its fast form: both give the same for any bytes.

Real segments, segments harmed at random, and records that hypothesis makes; the fast form once by array operations and
once in compiled form.
"""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtool.errors import FormatError
from mqtool.formats import commit_log, properties
from mqtool.records.columns import PropertySlices
from mqtool.records.frame_scan import scan_frames
from mqtool.records.frames import frames_at
from tests.fuzz.mutations import KINDS
from tests.property.records import log_of, records
from tests.support.stores import FIXTURES

pytestmark = pytest.mark.usefixtures("either_way")

LENGTH = 1 << 15
SEEDS = 8
NAMES = (properties.TAGS, properties.KEYS, properties.UNIQUE_KEY, properties.DELAY_LEVEL, "a", "名")


def segments():
    """The beginning of each real segment, and the physical offset of its first byte."""
    paths = sorted(FIXTURES.glob("*/store/commitlog/0*"))
    assert len(paths) > 40
    for path in paths:
        with path.open("rb") as file:
            yield int(path.name), file.read(LENGTH)


def harmed_segments():
    """Real segments with one or more changes."""
    source = random.Random(20)
    for base, data in segments():
        if not data.strip(b"\0"):
            continue
        for _ in range(SEEDS):
            changed = data
            for _ in range(source.choice((1, 1, 2, 5))):
                changed = source.choice(KINDS)(source, changed) if changed.strip(b"\0") else data
            yield base, changed


def frames_of(data, base=0, start=0):
    return frames_at(memoryview(data), start, base)[1]


def scanned(data, at=0):
    """Positions of complete records and where the next frame would begin, by the scalar rule."""
    found = []
    while len(data) - at >= commit_log.FRAME.size and not commit_log.is_blank(data, at):
        size = commit_log.frame_size(data, at, len(data) - at)
        if not size:
            break
        found.append(at)
        at += size
    return found, at


def parsed(view, position):
    try:
        return commit_log.parse_record(view, position)
    except FormatError:
        return None


FIELDS = [field.name for field in commit_log.HEADS[0][:-1] if not field.name.endswith("_host")]


def has_the_same_records(data, base, start=0):
    """Asserts that scan and decoding give what the scalar forms give; returns how many records there are, and whole."""
    view = memoryview(data)
    chain, frames = frames_at(view, start, base, with_crc=True)
    assert (chain.positions.tolist(), chain.end) == scanned(data, start)
    assert scan_frames(view, start).positions.tolist() == chain.positions.tolist()
    records = [parsed(view, position) for position in chain.positions.tolist()]
    assert frames.adds_up.tolist() == [record is not None for record in records]
    offsets = (base + chain.positions).tolist()
    truths = [one is not None and one.physical_offset == at for one, at in zip(records, offsets, strict=True)]
    assert frames.valid.tolist() == truths
    rows = [row for row, record in enumerate(records) if record is not None]
    whole, records = frames.select(rows), [records[row] for row in rows]
    for name in FIELDS:
        assert whole.column(name).tolist() == [getattr(record, name) for record in records], name
        if frames.adds_up.all():  # fields that a compiled pass may have filled
            assert frames.column(name).tolist() == whole.column(name).tolist(), name
    for name in ("body", "topic", "properties"):
        places = zip(getattr(whole, f"{name}_start").tolist(), getattr(whole, f"{name}_length").tolist(), strict=True)
        assert [bytes(view[at : at + size]) for at, size in places] == [getattr(record, name) for record in records]
    crcs = [commit_log.body_crc(record.body) for record in records]
    assert whole.computed_crc.tolist() == crcs
    assert frames.computed_crc[rows].tolist() == crcs
    return len(frames), len(rows)


@pytest.mark.slow
def test_real_records_are_found_and_decoded_as_by_the_scalar_form():
    counts = [has_the_same_records(data, base) for base, data in segments()]
    assert sum(found for found, _ in counts) == sum(whole for _, whole in counts) > 2_500


@pytest.mark.slow
def test_harmed_records_are_found_and_decoded_as_by_the_scalar_form():
    counts = [has_the_same_records(data, base) for base, data in harmed_segments()]
    found, whole = (sum(column) for column in zip(*counts, strict=True))
    assert found > whole > 2_000


@given(made=records, before=st.binary(max_size=30), edits=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255))))
def test_made_records_are_found_and_decoded_as_by_the_scalar_form(made, before, edits):
    data = bytearray(before + log_of(made)[0])
    for place, value in edits:
        data[(len(before) + place) % len(data)] = value
    found, whole = has_the_same_records(bytes(data), -len(before), len(before))
    assert whole <= found


def has_the_same_properties(frames):
    """Asserts that every property is where the scalar form finds it; returns how many there are."""
    slices, stored = PropertySlices(frames), frames.properties_of(slice(None))
    found = [[] for _ in stored]
    for owner, code, at, size in zip(slices.owner, slices.codes, slices.value_start, slices.value_length, strict=True):
        found[owner].append((slices.names[code], slices.data[at : at + size].tobytes()))
    assert found == [properties.pairs(data) for data in stored]
    decoded = [properties.decode(data) for data in stored]
    for name in NAMES:
        assert slices.strings(name).to_pylist() == [values.get(name) for values in decoded]
    words = [list(properties.keys_of(values)) for values in decoded]
    assert slices.keys().to_pylist() == words
    assert [dict(pairs) for pairs in slices.maps().to_pylist()] == decoded
    return len(slices.owner)


@pytest.mark.slow
def test_properties_of_real_records_are_those_of_the_scalar_form():
    assert sum(has_the_same_properties(frames_of(data, base)) for base, data in segments()) > 10_000


@pytest.mark.slow
def test_properties_of_harmed_records_are_those_of_the_scalar_form():
    count = Counter()
    for base, data in harmed_segments():
        frames = frames_of(data, base)
        frames = frames.select(frames.adds_up)
        count["records"] += len(frames)
        count["properties"] += has_the_same_properties(frames)
    assert min(count.values()) > 2_000, count


@given(made=records, before=st.binary(max_size=30))
def test_properties_of_made_records_are_those_of_the_scalar_form(made, before):
    data, _ = log_of(made)
    frames = frames_of(before + data, -len(before), len(before))
    assert len(frames) == len(made)
    pairs = (properties.pairs(commit_log.parse_record(frames.view, at).properties) for at in frames.positions.tolist())
    assert has_the_same_properties(frames) == sum(map(len, pairs))


def test_a_negative_topic_length_makes_a_record_invalid_though_its_lengths_add_up():
    data = bytearray(log_of([{"topic": b"", "properties": b""}])[0])
    data[-3] = 0xFF
    assert has_the_same_records(bytes(data), 0) == (1, 0)
