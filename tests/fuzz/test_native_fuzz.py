"""The compiled passes on mutated and cut records: they stay inside their buffers, whatever lengths the bytes state.

Each buffer is allocated at its exact size, so that the address sanitizer (`just sanitize`) sees a read after its end.
"""

import os
import random
from itertools import pairwise

import numpy as np
import pytest

from mqtool import native
from mqtool.formats.message_batch import build, make
from mqtool.records.frame_scan import scan_frames
from mqtool.records.number_sets import TopicTable
from tests.fuzz.mutations import KINDS
from tests.support.engine import HeldClock, open_small
from tests.support.native import form, needs_native
from tests.support.stores import STORES

pytestmark = needs_native

ROUNDS = int(os.environ.get("MQTOOL_FUZZ_ROUNDS", "300"))
SEGMENTS = [
    path
    for store in STORES
    if store.directory and not store.name.startswith(("equeue", "tfchunk"))
    for path in sorted((store.directory / "commitlog").glob("0*"))[:1]
]


def windows(seed: int):
    """Yields pieces of real segments with some bytes changed, most of them cut inside a record."""
    chance = random.Random(seed)
    for _ in range(ROUNDS):
        data = chance.choice(SEGMENTS).read_bytes()[: chance.choice((200, 5000, 60_000))]
        data = chance.choice(KINDS)(chance, data) if chance.random() < 0.8 else data
        yield chance, np.frombuffer(bytearray(data[: chance.randrange(1, len(data) + 1)] if data else b""), np.uint8)


def outputs(room: int):
    return (
        np.empty(room, np.int64),
        np.empty((5, room), np.int32),
        np.empty((10, room), np.int64),
        np.empty(room, np.int32),
    )


@pytest.mark.parametrize("seed", range(4))
def test_scans_trailers_and_lines(seed):
    table = TopicTable()
    for _chance, data in windows(seed):
        room = len(data) // 91 + 1
        positions, ints, longs, crcs = outputs(room)
        count = native.logs.scan(data, 0, True, positions, ints, longs, crcs)
        with form(compiled=False):
            assert positions[:count].tolist() == scan_frames(memoryview(data), 0).positions.tolist()
        target, ends = (
            np.empty(native.lines.room_for(len(data), len(data), count), np.uint8),
            np.empty(count, np.int64),
        )
        for mode in range(4):
            native.lines.json_lines(data, positions[:count].copy(), mode, True, target, ends)
        read = np.empty((5, count), np.int32), np.empty((10, count), np.int64)
        native.logs.read(data, positions[:count].copy(), ints[0, :count].astype(np.int64), *read)
        assert (read[0] == ints[:, :count]).all()
        assert (read[1] == longs[:, :count]).all()
        if not count or not longs[4, :count].all():
            continue
        parts = [longs[row, :count].copy() for row in (6, 7, 8, 9)]
        keys = int(parts[3].sum()) + 2 * count
        arrays = (
            np.empty(count, np.int32),
            np.empty(count, np.int64),
            np.empty(keys, np.int64),
            np.empty(keys, np.int32),
        )
        row = done = others = 0
        while row < count:
            state = (table.slots, 0, True, True, row, done, others)
            row, done, others = native.logs.dispatch(data, *parts, *state, *arrays, np.empty(count, np.int64))
            if row < count:
                table.learn(bytes(data[parts[0][row] : parts[0][row] + parts[1][row]]))
        native.logs.group(data, parts[0], parts[1], np.empty(9, np.int64), np.empty(count, np.int32))


@pytest.mark.parametrize("seed", range(4))
def test_passes_over_a_file(seed, tmp_path):
    logs, table = native.logs, TopicTable()
    path = tmp_path / "segment"
    for chance, data in windows(seed):
        path.write_bytes(data)
        room = len(data) // 91 + 1
        positions, ints, longs, codes = (
            np.empty(room, np.int64),
            np.empty((5, room), np.int32),
            np.empty((4, room), np.int64),
            np.empty(room, np.int32),
        )
        descriptor = os.open(path, os.O_RDONLY)
        window, held = np.empty(chance.choice((100, 1000, 1 << 17)), np.uint8), np.zeros(2, np.int64)
        at = taken = 0
        end = len(data) + chance.choice((0, 1000))
        for _ in range(20):
            with_crc = chance.random() < 0.5
            reading = descriptor, 0, at, end, end, window, held, table.slots, 1 << 60, with_crc
            taken, at, _, topic, length = logs.field_records(*reading, taken, positions, ints, longs, codes)
            if topic < 0:
                break
            table.learn(bytes(window[topic : topic + length]))
        os.close(descriptor)
        assert at <= len(data)


@pytest.mark.parametrize("seed", range(4))
def test_units_and_entries(seed):
    logs, chance = native.logs, random.Random(seed)
    for _ in range(ROUNDS):
        data = np.frombuffer(bytearray(chance.randbytes(chance.randrange(0, 400))), np.uint8)
        bases = np.array([0, 1 << 20], np.int64)
        log = (1 << 22, bases, bases + (1 << 20), np.array([0, 1, 2], np.int64), 20)
        sums = np.zeros(2, np.uint64), np.zeros(2, np.int64)
        data[::20] &= chance.choice((0, 0xFF))
        seen = logs.plain_units(data, 0, 7, *log, *sums)
        assert int(sums[1].sum()) == (0 if seen is None else len(data) // 20)
        heads = np.zeros(chance.choice((0, 1, 7)), np.int32)
        logs.plain_entries(data, 1, heads, *log, *sums)


@pytest.mark.parametrize("seed", range(4))
def test_batches_of_clients(seed, in_memory):
    chance = random.Random(seed)
    with open_small(in_memory / "store", HeldClock(), commit_log_file_size=1 << 20) as store:
        store.put("T", 0, b"x")
        for _ in range(ROUNDS // 4):
            batch = b"".join(build(make(chance.randbytes(chance.randrange(9)), b"k\1v\2", 0)) for _ in range(3))
            data = chance.choice(KINDS)(chance, batch)[: chance.randrange(1, len(batch) + 1)]
            before = store._components.log.queue.wrote_offset
            result = store.put_batch("T", 0, data)
            offsets = [*result.physical_offsets, store._components.log.queue.wrote_offset]
            assert result.ok or offsets == [before]
            assert all(first < second for first, second in pairwise(offsets))
