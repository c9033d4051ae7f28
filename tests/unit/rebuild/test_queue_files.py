"""Queue files of a new directory: pre-blank units, holes, cuts, extensions, names that lead nowhere else."""

from types import SimpleNamespace

import numpy as np
import pytest

from mqtool.errors import StoreError
from mqtool.formats.consume_queue import (
    BATCH_CONSUME_QUEUE_UNIT,
    CONSUME_QUEUE_UNIT,
    PRE_BLANK,
    BatchConsumeQueueUnit,
    ConsumeQueueUnit,
    ext_address,
    parse_ext_unit,
)
from mqtool.rebuild.files import OutputFiles, SegmentWriter
from mqtool.rebuild.placement import HoleBudget, Listing
from mqtool.rebuild.queue_writer import (
    BatchQueueWriter,
    ExpiredQueue,
    ExtensionWriter,
    QueueName,
    SimpleQueueWriter,
    UnitBatch,
    write_expired,
)
from mqtool.rebuild.sink import IndexWriter

NAME = QueueName("T", 2)


def batch(offsets, *, tags=0):
    made = UnitBatch.empty()
    made.offsets = np.array(offsets, np.int64)
    made.units = np.zeros(len(offsets), CONSUME_QUEUE_UNIT.dtype)
    made.units["physical_offset"] = 1000 + 10 * made.offsets
    made.units["size"] = 10
    made.units["tags_code"] = tags
    made.times = made.offsets + 1_700_000_000_000
    made.counts = np.ones(len(offsets), np.int16)
    return made


def unit(offset, tags_code=0):
    return ConsumeQueueUnit(1000 + 10 * offset, 10, tags_code)


def written(root, kind="consumequeue", topic="T"):
    """Units of each file, zero ones at the end left out."""
    found = {}
    for path in sorted((root / kind / topic / "2").iterdir()):
        units = [CONSUME_QUEUE_UNIT.parse(path.read_bytes(), at) for at in range(0, path.stat().st_size, 20)]
        while units and units[-1].size == 0:
            units.pop()
        found[int(path.name)] = units
    return found


def write(root, *batches, file_units=5, name=NAME):
    with OutputFiles(root) as output:
        writer = SimpleQueueWriter(name, output, file_units * 20, HoleBudget(1 << 20), lambda _offset: None)
        for one in batches:
            writer.add(one)
        writer.finish()
    return writer


def test_a_queue_from_zero_fills_file_after_file(tmp_path):
    write(tmp_path, batch(range(5)), batch(range(5, 12)))
    assert written(tmp_path) == {
        0: [unit(n) for n in range(5)],
        100: [unit(n) for n in range(5, 10)],
        200: [unit(10), unit(11)],
    }
    assert {path.stat().st_size for path in (tmp_path / "consumequeue/T/2").iterdir()} == {100}


def test_a_full_last_file_is_not_followed_by_an_empty_one(tmp_path):
    write(tmp_path, batch(range(10)))
    assert list(written(tmp_path)) == [0, 100]


def test_the_first_file_of_a_trimmed_queue_begins_with_pre_blank_units(tmp_path):
    write(tmp_path, batch(range(13, 16)))
    assert written(tmp_path) == {200: [PRE_BLANK, PRE_BLANK, PRE_BLANK, unit(13), unit(14)], 300: [unit(15)]}


def test_a_hole_is_filled_with_the_message_behind_it_for_those_who_want_all(tmp_path):
    writer = write(tmp_path, batch([0, 1], tags=7), batch([4, 5], tags=7))
    assert written(tmp_path) == {0: [unit(0, 7), unit(1, 7), unit(4), unit(4), unit(4, 7)], 100: [unit(5, 7)]}
    assert writer.placement.notes.count == 1


def test_a_hole_among_delayed_messages_has_the_time_of_the_next_delivery(tmp_path):
    write(tmp_path, batch([0, 2], tags=9000), name=QueueName("SCHEDULE_TOPIC_XXXX", 2))
    assert written(tmp_path, topic="SCHEDULE_TOPIC_XXXX") == {0: [unit(0, 9000), unit(2, 9000), unit(2, 9000)]}


def test_a_queue_made_anew_leaves_nothing_of_the_old_one(tmp_path):
    write(tmp_path, batch(range(12)), batch(range(2)))
    assert written(tmp_path) == {0: [unit(0), unit(1)]}


def test_a_queue_cut_in_a_file_goes_on_there(tmp_path):
    write(tmp_path, batch(range(12)), batch([7, 8]))
    assert written(tmp_path) == {0: [unit(n) for n in range(5)], 100: [unit(5), unit(6), unit(7), unit(8)]}


def test_a_hole_before_units_that_are_cut_off_is_filled_with_the_unit_that_replaces_them(tmp_path):
    write(tmp_path, batch([0, 1]), batch([4, 5]), batch([3, 4, 5, 6]))
    assert written(tmp_path) == {0: [unit(0), unit(1), unit(3), unit(3), unit(4)], 100: [unit(5), unit(6)]}


def test_a_queue_that_begins_anew_before_its_first_unit_starts_over(tmp_path):
    write(tmp_path, batch(range(13, 16)), batch([6, 7]))
    assert written(tmp_path) == {100: [PRE_BLANK, unit(6), unit(7)]}


def test_batch_units_stand_one_behind_the_other(tmp_path):
    made = batch([0, 5, 12])
    made.counts = np.array([5, 7, 1], np.int16)
    with OutputFiles(tmp_path) as output:
        writer = BatchQueueWriter(NAME, output, 100)
        writer.add(made)
        writer.add(made)  # already there
        negative = batch([20, -1])
        negative.counts = np.array([-1, 1], np.int16)
        writer.add(negative)
        writer.finish()
    files = sorted((tmp_path / "batchconsumequeue/T/2").iterdir())
    assert [(path.name[-3:], path.stat().st_size) for path in files] == [("000", 92), ("092", 92)]
    units = [BATCH_CONSUME_QUEUE_UNIT.parse(files[n // 2].read_bytes(), n % 2 * 46) for n in range(3)]
    assert [(one.base_queue_offset, one.batch_size, one.compacted_offset) for one in units] == [
        (0, 5, -1),
        (5, 7, -1),
        (12, 1, -1),
    ]


def test_extension_units_that_do_not_fit_begin_the_next_file(tmp_path):
    made = batch(range(4), tags=77)
    with OutputFiles(tmp_path) as output:
        writer = ExtensionWriter(NAME, output, 100)
        writer.add(made, [b"\1\2", b"", b"\1\2", b"\1\2"])  # 22 + 20 + 22 + 22 bytes, of 96
        writer.add(batch([4]), [b"\1\2"])
        writer.finish()
    assert made.units["tags_code"].tolist() == [ext_address(at) for at in (0, 22, 42, 64)]
    first, second = (path.read_bytes() for path in sorted((tmp_path / "consumequeue_ext/T/2").iterdir()))
    found = [parse_ext_unit(first, at) for at in (0, 22, 42, 64)]
    assert [(one.tags_code, one.bit_map) for one in found] == [(77, b"\1\2"), (77, b""), (77, b"\1\2"), (77, b"\1\2")]
    assert first[86:90] == b"\xff\xff\0\0"
    assert parse_ext_unit(second, 0).bit_map == b"\1\2"


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "../../x", "nul\0", "x" * 256, "é" * 128])
def test_a_topic_that_cannot_be_a_directory_is_reported(topic):
    assert not QueueName(topic, 0).is_path


@pytest.mark.parametrize("topic", ["T", "%RETRY%g", "...", "é" * 127, "%LMQ%a b"])
def test_a_topic_that_can_be_a_directory_is_one(topic):
    assert QueueName(topic, 0).is_path


def test_many_files_are_written_with_few_open(tmp_path):
    with OutputFiles(tmp_path) as output:
        for number in range(300):
            output.write(f"q/{number}/file", 4, 1, b"y")
        for number in range(300):
            assert output.read(f"q/{number}/file", 0, 9) == b"\0y\0\0"


def test_a_disk_that_refuses_is_reported_with_the_file(tmp_path):
    (tmp_path / "q").write_bytes(b"in the way")
    with OutputFiles(tmp_path) as output, pytest.raises(StoreError, match="cannot be written"):
        output.write("q/file", 4, 0, b"y")


def test_nothing_is_written_through_a_link(tmp_path):
    (tmp_path / "target").write_bytes(b"precious")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "file").symlink_to(tmp_path / "target")
    with OutputFiles(tmp_path / "out") as output, pytest.raises(StoreError):
        output.write("file", 4, 0, b"y")
    assert (tmp_path / "target").read_bytes() == b"precious"


def test_a_file_that_is_gone_is_named(tmp_path):
    with OutputFiles(tmp_path) as output, pytest.raises(StoreError, match="q/file: cannot be read: No such file"):
        output.read("q/file", 0, 4)


def test_a_list_keeps_its_first_items_and_counts_all(monkeypatch):
    monkeypatch.setattr("mqtool.rebuild.placement.LISTED", 3)
    found = Listing()
    for number in range(5):
        found.add(number)
    assert (found.items, found.count) == ([0, 1, 2], 5)
    found.extend([7], 9)
    assert (found.items, found.count) == ([0, 1, 2], 14)


def test_an_index_without_an_open_file_takes_no_keys(tmp_path):
    with OutputFiles(tmp_path) as output:
        writer = IndexWriter(output, 10, 20)
        assert (writer.fill(None), writer.is_full) == (0, False)


def test_a_record_that_is_longer_than_a_segment_is_refused(tmp_path):
    """A segment must have room for a BLANK of 8 bytes behind it."""
    with OutputFiles(tmp_path) as output:
        writer = SegmentWriter(output, 0, 200)
        assert writer.place(np.array([192, 100, 92])).tolist() == [0, 200, 300]
        with pytest.raises(StoreError, match="commitlog: a record of 193 bytes does not fit into a segment of 200"):
            writer.place(np.array([100, 193]))


def test_the_last_unit_of_an_expired_batch_queue_is_its_only_one(tmp_path):
    unit = BATCH_CONSUME_QUEUE_UNIT.build(BatchConsumeQueueUnit(500, 100, 0, 1_700_000_000_000, 7, 3, 0))
    settings = SimpleNamespace(batch_consume_queue_size=100)
    with OutputFiles(tmp_path) as output:
        write_expired(ExpiredQueue(QueueName("T", 1), True, 7, 500, unit), output, settings)
    (file,) = (tmp_path / "batchconsumequeue" / "T" / "1").iterdir()
    assert file.name == f"{0:020d}"
    assert file.read_bytes() == unit.ljust(100 // len(unit) * len(unit), b"\0")
