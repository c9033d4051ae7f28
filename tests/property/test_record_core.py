"""The rules of the record core, each in its scalar and its fast form: both give the same for any bytes.

Real segments, segments harmed at random, and records that hypothesis makes; the fast form once by array operations and
once by compiled loops.
"""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtool.formats import java, properties
from mqtool.records.frames import frames_at
from mqtool.records.trailers import trailers_of, values_of
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


def has_the_same_properties(frames):
    """Asserts that every property is where the scalar form finds it; returns how many there are."""
    trailers, count = trailers_of(frames), 0
    starts, lengths = frames.properties_start.tolist(), frames.properties_length.tolist()
    stored = [bytes(frames.view[start : start + length]) for start, length in zip(starts, lengths, strict=True)]
    for part in trailers:
        slices = part.property_slices
        found = [[] for _ in part.rows]
        where = (slices.name_start, slices.name_length, slices.value_start, slices.value_length)
        for owner, name_at, name_size, at, size in zip(slices.owner, *where, strict=True):
            name, value = part.data[name_at : name_at + name_size], part.data[at : at + size]
            found[owner].append((name.tobytes(), value.tobytes()))
        assert found == [properties.pairs(stored[row]) for row in part.rows]
        count += len(slices.owner)
    for name in NAMES:
        at, size = (column.tolist() for column in values_of(frames, trailers, name))
        values = [bytes(frames.view[a : a + s]) if s >= 0 else None for a, s in zip(at, size, strict=True)]
        decoded = [None if value is None else java.decode_utf8(value) for value in values]
        assert decoded == [properties.decode(one).get(name) for one in stored]
    return count


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
    has_the_same_properties(frames)
