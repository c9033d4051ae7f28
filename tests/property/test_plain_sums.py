"""The compiled sums of units and index entries are those of array operations, for any order and any segments."""

from pathlib import Path

import numpy as np
import pytest

from mqtool.formats.consume_queue import CONSUME_QUEUE_UNIT
from mqtool.formats.index_file import ENTRY
from mqtool.records.index_chains import chain
from mqtool.store.files import MappedFile
from mqtool.verify.checksums import BUCKET_BITS, Buckets, Sums, mix_entries, mix_units
from tests.support.native import needs_native

pytestmark = needs_native

MIB = 1 << BUCKET_BITS
# the second one begins after a gap, the last one ends inside a bucket
SEGMENTS = [MappedFile(Path(f"{base:020d}"), base, size) for base, size in ((0, 3 * MIB), (5 * MIB, 2 * MIB + 700))]
END = SEGMENTS[-1].base + 2 * MIB + 300
SLOTS = 13


@pytest.fixture(params=range(12))
def chance(request):
    return np.random.default_rng(request.param)


def offsets_of(chance, count, *, ordered):
    """Physical offsets of records in the log, neighbours mostly in one bucket."""
    found = np.concatenate([chance.integers(seg.base, min(seg.end, END), count) for seg in SEGMENTS])[
        :: chance.integers(1, 9)
    ]
    return np.sort(found) if ordered else found


def sums_of(buckets, physical, values):
    sums = Sums(buckets.count)
    sums.add(buckets.of(physical), values)
    return sums


def same(one, other):
    return (one.total == other.total).all() and (one.count == other.count).all()


@pytest.mark.parametrize("ordered", [True, False])
def test_units(chance, ordered):
    physical = offsets_of(chance, 200, ordered=ordered)
    units = np.zeros(len(physical), CONSUME_QUEUE_UNIT.dtype)
    units["physical_offset"], units["size"] = physical, chance.integers(100, 5000, len(physical))
    units["tags_code"] = chance.integers(-(1 << 31), 1 << 31, len(physical))
    buckets, key, start = Buckets(SEGMENTS), np.uint64(chance.integers(1 << 60)), 70
    mixed = mix_units(
        np.array([key]),
        start + np.arange(len(units)),
        physical,
        units["size"].astype(np.int64),
        units["tags_code"].astype(np.int64),
    )
    sums = Sums(buckets.count)
    seen = buckets.add_plain_units(sums, units, start, key, END)
    assert seen == (physical.min(), physical.max(), (physical + units["size"]).max())
    assert same(sums, sums_of(buckets, physical, mixed))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("size", 3),
        ("physical_offset", 4 * MIB),
        ("physical_offset", END),
        ("physical_offset", -1),
        ("tags_code", -(1 << 40)),
    ],
)
def test_nothing_is_added_if_one_unit_is_not_plain(chance, field, value):
    physical = offsets_of(chance, 200, ordered=True)
    units = np.zeros(len(physical), CONSUME_QUEUE_UNIT.dtype)
    units["physical_offset"], units["size"] = physical, 500
    units[field][chance.integers(len(units))] = value
    buckets = Buckets(SEGMENTS)
    sums = sums_of(buckets, physical, physical.astype(np.uint64))
    assert buckets.add_plain_units(sums, units, 0, np.uint64(5), END) is None
    assert same(sums, sums_of(buckets, physical, physical.astype(np.uint64)))


@pytest.mark.parametrize("broken", ["", "previous", "key_hash", "physical_offset"])
def test_entries(chance, broken):
    physical = offsets_of(chance, 150, ordered=chance.random() < 0.5)
    entries = np.zeros(len(physical), ENTRY.dtype)
    hashes = chance.choice([0, 1, 2**31 - 1, 2**31 - 2, SLOTS, 12345678], len(physical))
    entries["physical_offset"], entries["key_hash"] = physical, hashes
    entries["time_diff"] = chance.integers(0, 1000, len(physical))
    due = np.zeros(SLOTS, np.int32)
    entries["previous"] = chain(due, (hashes % SLOTS).astype(np.int32), 40)
    first_bad = len(entries)
    if broken:
        first_bad = int(chance.integers(len(entries)))
        entries[broken][first_bad] = {"previous": 77777, "key_hash": -5, "physical_offset": 4 * MIB}[broken]
    buckets, heads = Buckets(SEGMENTS), np.zeros(SLOTS, np.int32)
    sums = Sums(buckets.count)
    taken, low, high = buckets.add_plain_entries(sums, entries, 40, heads, END)
    assert taken == first_bad
    good = physical[:taken]
    assert taken == 0 or (low, high) == (good.min(), good.max())
    mixed = mix_entries(hashes[:taken], good, entries["time_diff"][:taken].astype(np.int64))
    assert same(sums, sums_of(buckets, good, mixed))
    newest = np.zeros(SLOTS, np.int32)
    chain(newest, (hashes[:taken] % SLOTS).astype(np.int32), 40)
    assert (heads == newest).all()


@pytest.mark.parametrize("slots", [1, 2, 7, 1000, 5_000_000])
def test_slots_of_any_number(chance, slots):
    """Slots are found without a division; every hash has to lead to the slot that Java computes."""
    hashes = np.concatenate(
        [
            chance.integers(0, 1 << 31, 500),
            slots * np.arange(1, 40) % (1 << 31),
            slots * np.arange(1, 40) % (1 << 31) - 1,
        ]
    )
    hashes = hashes[hashes >= 0]
    entries = np.zeros(len(hashes), ENTRY.dtype)
    entries["physical_offset"], entries["key_hash"] = 1, hashes
    heads = np.zeros(slots, np.int32)
    due = np.zeros(slots, np.int32)
    entries["previous"] = chain(due, (hashes % slots).astype(np.int32), 1)
    sums = Sums(Buckets(SEGMENTS).count)
    taken, *_ = Buckets(SEGMENTS).add_plain_entries(sums, entries, 1, heads, END)
    assert taken == len(entries)
    assert (heads == due).all()
