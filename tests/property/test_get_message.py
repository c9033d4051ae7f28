"""One getMessage, whoever reads: a live engine, the files on disk, and the columns of a predicted start."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mqtool
from mqtool.formats.consume_queue import CONSUME_QUEUE_UNIT, UNIT_SIZE, ConsumeQueueUnit
from mqtool.recovery import predict
from mqtool.recovery.reading import STATES, Delivery
from tests.support.engine import SMALL, open_small
from tests.support.rocketmq import sparse_copy

COUNT, FIRST = 100, 20
"""Messages, and the first of the log's third segment, with which the log begins; its queue begins with a file too."""

SIZES = {"mappedFileSizeCommitLog": SMALL["commit_log_file_size"], "mappedFileSizeConsumeQueue": 200}

# Not in the first file, where a start looks for the minimum offset, nor in the last three, where it examines units.
units = st.dictionaries(
    st.integers(FIRST + 10, COUNT - 31),
    st.sampled_from([(0, 0, 0), (0, 0, 7), (0, 405, 0), (0, 391, 0), (0, 20, 0), (5000, 405, 0), (1 << 40, 405, 0)]),
    max_size=30,
)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A store whose first two segments are deleted, with all queue files that named only their records."""
    root = tmp_path_factory.mktemp("get") / "store"
    store = open_small(root)
    for _ in range(COUNT):
        assert store.put("T", 0, b"x" * 313).ok
    store.dispatch()
    store.close()
    for path in [*sorted((root / "commitlog").iterdir())[:2], *sorted((root / "consumequeue/T/0").iterdir())[:2]]:
        path.unlink()
    return root


def damaged(built, folder, units):
    root = sparse_copy(built, Path(folder) / "store")
    for queue_offset, unit in units.items():
        position = queue_offset * UNIT_SIZE
        with (root / f"consumequeue/T/0/{position // 200 * 200:020d}").open("r+b") as file:
            file.seek(position % 200)
            file.write(CONSUME_QUEUE_UNIT.build(ConsumeQueueUnit(*unit)))
    return root


def place(record):
    return int.from_bytes(record[28:36], "big")


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(units=units, most=st.sampled_from([1, 3, 32]))
def test_engine_and_files_on_disk_answer_alike(built, units, most):
    with tempfile.TemporaryDirectory() as folder:
        root = damaged(built, folder, units)
        with mqtool.open(root) as store:
            low, high = store.queue("T", 0).min_offset, COUNT
            on_disk = [store.get_message("T", 0, offset, most) for offset in range(low, high + 2)]
        live = open_small(root)
        for offset, expected in enumerate(on_disk, low):
            found = live.get_message("T", 0, offset, most)
            answer = found.status, found.next_begin_offset, len(found.records)
            assert answer == (expected.status, expected.next_begin_offset, len(expected.messages + expected.damage))
        live.close()


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(units=units)
def test_a_predicted_start_delivers_what_an_engine_delivers(built, units):
    with tempfile.TemporaryDirectory() as folder:
        root = damaged(built, folder, units)
        reading = predict(root, "5.5", SIZES, whole_broker=False).readings["T/0"]
        live = open_small(root)
        assert len(reading.offsets) == COUNT - live.queue_bounds("T", 0)[0]
        for offset, number, physical in zip(reading.offsets, reading.states, reading.physical, strict=True):
            found = live.get_message("T", 0, int(offset), 1)
            is_skipped = found.records and found.next_begin_offset != offset + 1
            match STATES[number]:
                case Delivery.OK:
                    assert not is_skipped
                    assert place(found.records[0]) == physical
                case Delivery.REMOVED:
                    assert not found.records
                case state:
                    assert found.records
                    assert is_skipped == (state is Delivery.SKIPPED)
        live.close()


@pytest.mark.parametrize(
    ("most", "queue_offset", "status", "next_offset", "sizes"),
    [
        (1, 45, "FOUND", 47, [0, 405]),  # isTheBatchFull: the sum of the sizes is 0 before the second
        (3, 44, "FOUND", 47, [405, 0, 405]),
        (1, 66, "FOUND", 67, [391]),
        (3, 65, "FOUND", 68, [405, 391, 20]),
        (32, 48, "FOUND", 50, [405, 0]),  # the last unit of a file
        (1, 49, "FOUND", 50, [0]),
        (3, 53, "FOUND", 60, [405, 0]),
        (3, 54, "MESSAGE_WAS_REMOVING", 60, [0]),
        (3, 55, "MESSAGE_WAS_REMOVING", 60, []),
    ],
)
def test_units_that_name_offset_0_read_the_oldest_segment(
    built, tmp_path, most, queue_offset, status, next_offset, sizes
):
    """As 4.9.7 and 5.5.0 answer about such a store."""
    units = {45: (0, 0, 0), 49: (0, 0, 0), 54: (0, 0, 0), 55: (1 << 40, 405, 0), 66: (0, 391, 0), 67: (0, 20, 5)}
    live = open_small(damaged(built, tmp_path, units))
    found = live.get_message("T", 0, queue_offset, most)
    assert (found.status.name, found.next_begin_offset) == (status, next_offset)
    assert [len(record) for record in found.records] == sizes
    assert [place(record) for record in found.records if len(record) == 391] == [8192] * sizes.count(391)
    live.close()
