"""Whole runs: damage, ranges, several processes, stopping and going on."""

import contextlib
import errno
import json
import os
import shutil
import struct
from itertools import count
from pathlib import Path

import pytest

import mqtool
from mqtool.errors import ConfigFileError, StoreError, UsageError
from mqtool.formats import commit_log
from mqtool.formats.consume_queue import CONSUME_QUEUE_UNIT, PRE_BLANK
from mqtool.rebuild import job, parts, sink
from mqtool.rebuild.files import FileSequence
from mqtool.rebuild.job import Options, rebuild, rebuild_index_file
from mqtool.rebuild.parts import RebuildScope
from mqtool.rebuild.placement import NoteKind
from mqtool.rebuild.settings import settings_of
from mqtool.records import segment_bytes
from mqtool.records.damage import DamageKind
from mqtool.store.index_file import IndexFile
from mqtool.store.log import cuts
from mqtool.store.queues.filter_bit_maps import bit_maps_of
from tests.support.stores import copy_store, store_fixture
from tests.unit.rebuild.model import laid_out, record

pytestmark = pytest.mark.usefixtures("either_way")

SIZES = {"mappedFileSizeConsumeQueue": 2000, "maxHashSlotNum": 50, "maxIndexNum": 60}


def tree(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def make_store(root: Path, records, *, segment=1 << 16, name="commitlog"):
    """A store of one log; records fill segments, each ended by a BLANK."""
    (root / name).mkdir(parents=True)
    base, rest = 0, list(records)
    while rest:
        count, size = 0, 0
        while count < len(rest) and size + rest[count].total_size + 8 <= segment:
            size += rest[count].total_size
            count += 1
        data, _ = laid_out(rest[:count], base)
        if count < len(rest):
            data += commit_log.build_blank(segment - len(data))
        (root / name / f"{base:020d}").write_bytes(data.ljust(segment, b"\0"))
        base, rest = base + segment, rest[count:]
    return root


def numbered(count, topic="T", first=0, body=b"body", **more):
    return [
        record(topic, 0, first + n, props={"KEYS": f"k{n:04d}", "TAGS": "a"}, body=body, **more) for n in range(count)
    ]


def run_rebuild(root, out, wanted=None, options=None, **more):
    with mqtool.open(root, SIZES) as store:
        return rebuild(store, out, settings_of(store), wanted, options, **more)


def queue_units(out, topic="T"):
    data = b"".join(path.read_bytes() for path in sorted((out / "consumequeue" / topic / "0").iterdir()))
    units = [CONSUME_QUEUE_UNIT.parse(data, at) for at in range(0, len(data), 20)]
    while units and not units[-1].size:
        units.pop()
    return units


def offsets_of(root, out):
    """The queue offset that the record of each unit of T/0 states."""
    with mqtool.open(root) as store:
        return [store.message_at(unit.physical_offset).queue_offset for unit in queue_units(out)]


def test_damage_is_skipped_and_every_other_message_keeps_its_offset(tmp_path):
    root = make_store(tmp_path / "s", numbered(30))
    segment = root / "commitlog" / f"{0:020d}"
    data = bytearray(segment.read_bytes())
    size = struct.unpack_from(">i", data)[0]
    data[10 * size : 12 * size] = b"\xee" * (2 * size)
    segment.write_bytes(data)
    result = run_rebuild(root, tmp_path / "out")
    assert not result.is_complete
    assert (result.damage.count, result.damaged_bytes, result.records) == (1, 2 * size, 28)
    assert offsets_of(root, tmp_path / "out") == [*range(10), 12, 12, *range(12, 30)]
    ((_, note),) = result.notes.items
    assert (note.kind, note.first, note.last) == (NoteKind.HOLE, 10, 11)


def test_a_missing_segment_is_damage_of_its_size(tmp_path):
    root = make_store(tmp_path / "s", numbered(300), segment=16384)
    segments = sorted((root / "commitlog").iterdir())
    segments[1].unlink()
    result = run_rebuild(root, tmp_path / "out")
    assert [(one.kind, one.start, one.end) for one in result.damage.items] == [(DamageKind.MISSING, 16384, 32768)]
    assert len(offsets_of(root, tmp_path / "out")) == 300


def test_a_body_that_is_wrong_keeps_its_unit(tmp_path):
    root = make_store(tmp_path / "s", numbered(5))
    segment = root / "commitlog" / f"{0:020d}"
    segment.write_bytes(segment.read_bytes().replace(b"body", b"bodY", 1))
    assert run_rebuild(root, tmp_path / "out").is_complete
    assert offsets_of(root, tmp_path / "out") == list(range(5))


def test_a_topic_that_leads_out_of_the_directory_gets_no_file(tmp_path):
    root = make_store(tmp_path / "s", [*numbered(2), record("../../../escaped"), record("a/b"), *numbered(1, first=2)])
    result = run_rebuild(root, tmp_path / "out")
    assert [name.topic for name in result.unwritable.items] == ["../../../escaped", "a/b"]
    assert not result.is_complete
    assert {path.split("/")[1] for path in tree(tmp_path / "out") if path.startswith("consume")} == {"T"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "s"]


def test_a_queue_offset_beyond_all_measure_fills_no_disk(tmp_path):
    made = [*numbered(3), *numbered(2, first=1 << 50), *numbered(1, first=(1 << 50) + 2)]
    result = run_rebuild(make_store(tmp_path / "s", made), tmp_path / "out")
    assert [note.kind for _, note in result.notes.items] == [NoteKind.SHIFTED]
    assert len(queue_units(tmp_path / "out")) == 6


def test_a_range_makes_what_its_records_need(tmp_path):
    root = make_store(tmp_path / "s", numbered(40))
    run_rebuild(root, tmp_path / "whole")
    size = laid_out(numbered(1))[1][0].total_size
    result = run_rebuild(root, tmp_path / "part", RebuildScope(start=10 * size, end=20 * size))
    assert result.records == 10
    units = queue_units(tmp_path / "part")
    assert [unit == PRE_BLANK for unit in units] == [True] * 10 + [False] * 10
    assert units[10:] == queue_units(tmp_path / "whole")[10:20]


def test_a_range_may_begin_inside_a_record(tmp_path):
    root = make_store(tmp_path / "s", numbered(40))
    size = laid_out(numbered(1))[1][0].total_size
    result = run_rebuild(root, tmp_path / "part", RebuildScope(start=10 * size + 1, end=12 * size + 1))
    assert (result.records, result.damage.count) == (2, 0)


def test_queues_and_index_can_be_made_apart(tmp_path):
    root = make_store(tmp_path / "s", numbered(80))
    run_rebuild(root, tmp_path / "both")
    run_rebuild(root, tmp_path / "queues", RebuildScope(index=False))
    run_rebuild(root, tmp_path / "index", RebuildScope(queues=False))
    assert tree(tmp_path / "both") == tree(tmp_path / "queues") | tree(tmp_path / "index")


def test_a_log_without_records_makes_nothing(tmp_path):
    (tmp_path / "s" / "commitlog").mkdir(parents=True)
    (tmp_path / "s" / "commitlog" / f"{0:020d}").write_bytes(bytes(65536))
    assert run_rebuild(tmp_path / "s", tmp_path / "out").records == 0
    (tmp_path / "s" / "commitlog" / f"{0:020d}").unlink()
    assert run_rebuild(tmp_path / "s", tmp_path / "none").records == 0


@pytest.mark.slow
@pytest.mark.parametrize("lure", [False, True])
def test_processes_that_meet_at_no_record_give_the_same_bytes(tmp_path, monkeypatch, lure):
    inner = laid_out(numbered(3, topic="Inner"), base=0)[0]
    body = (inner + bytes(50)) * 20 if lure else bytes(3000)
    root = make_store(tmp_path / "s", numbered(60, body=body), segment=1 << 20)
    run_rebuild(root, tmp_path / "one")
    monkeypatch.setattr(parts, "PART_BYTES", 4096)
    if lure:  # cuts inside bodies, which no walk that comes from before will meet
        monkeypatch.setattr(cuts, "record_in", lambda data, base: 17)
    run_rebuild(root, tmp_path / "two", options=Options(jobs=2))
    assert tree(tmp_path / "two") == tree(tmp_path / "one")


def test_damage_at_a_cut_is_reported_once(tmp_path, monkeypatch):
    root = make_store(tmp_path / "s", numbered(400), segment=1 << 17)
    segment = root / "commitlog" / f"{0:020d}"
    data = bytearray(segment.read_bytes())
    size = struct.unpack_from(">i", data)[0]
    data[100 * size + 4 : 100 * size + 8] = bytes(4)
    segment.write_bytes(data)
    monkeypatch.setattr(parts, "PART_BYTES", 101 * size)
    one, two = run_rebuild(root, tmp_path / "one"), run_rebuild(root, tmp_path / "two", options=Options(jobs=2))
    assert one.damage.items == two.damage.items
    assert tree(tmp_path / "two") == tree(tmp_path / "one")


class Stop(Exception):
    """Ends a run in the middle."""


def stop_at(call):
    """A progress callback that ends the run at its call of this number."""
    calls = count(1)

    def stop(_done: int, _total: int) -> None:
        if next(calls) == call:
            raise Stop

    return stop


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "stop_after"),
    [
        ("orders-5.5.0", 1),
        ("orders-5.5.0", 30),
        ("bcq-5.5.0", 1),
        ("cqext-4.9.7", 2),
        ("rollover-4.9.7", 9),
    ],
)
def test_a_stopped_run_goes_on_to_the_same_bytes(tmp_path, monkeypatch, name, stop_after):
    monkeypatch.setattr(segment_bytes, "WINDOW", 8192)
    root = store_fixture(name).directory
    options = Options(state=tmp_path / "state", state_interval=1)
    with mqtool.open(root) as store:
        settings = settings_of(store)
        bit_maps = bit_maps_of(store) if settings.has_extension else None
        rebuild(store, tmp_path / "whole", settings, bit_maps=bit_maps)
        with pytest.raises(Stop):
            rebuild(
                store, tmp_path / "out", settings, None, options, bit_maps=bit_maps, on_progress=stop_at(stop_after)
            )
        again = Options(state=tmp_path / "state", resume=True, state_interval=1)
        result = rebuild(store, tmp_path / "out", settings, None, again, bit_maps=bit_maps)
    assert result.is_complete
    assert tree(tmp_path / "out") == tree(tmp_path / "whole")
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(("name", "stop_after"), [("bcq-5.5.0", 2), ("bcq-5.5.0", 4), ("orders-5.5.0", 12)])
def test_a_stopped_run_of_a_damaged_log_goes_on_with_what_it_has_noted(tmp_path, monkeypatch, name, stop_after):
    monkeypatch.setattr(segment_bytes, "WINDOW", 8192)
    root = copy_store(name, tmp_path)
    segment = min((root / "commitlog").iterdir())
    data = bytearray(segment.read_bytes())
    at = struct.unpack_from(">i", data)[0]
    data[at + 4 : at + 8] = bytes(4)
    segment.write_bytes(data)
    options = Options(state=tmp_path / "state", state_interval=1)
    with mqtool.open(root, store_fixture(name).config) as store:
        settings = settings_of(store)
        whole = rebuild(store, tmp_path / "whole", settings)
        with pytest.raises(Stop):
            rebuild(store, tmp_path / "out", settings, None, options, on_progress=stop_at(stop_after))
        assert (tmp_path / "state").exists()
        again = Options(state=tmp_path / "state", resume=True, state_interval=1)
        result = rebuild(store, tmp_path / "out", settings, None, again)
    assert result.damage.items == whole.damage.items
    assert result.damage.items[0].start == at
    assert (result.units, result.notes.items) == (whole.units, whole.notes.items)
    assert tree(tmp_path / "out") == tree(tmp_path / "whole")


def test_notes_of_another_run_are_refused(tmp_path):
    root = make_store(tmp_path / "s", numbered(30))
    stopped = Options(state=tmp_path / "state", state_interval=1)

    def stop(done: int, _total: int) -> None:
        if (tmp_path / "state").exists():
            raise Stop

    with pytest.raises(Stop):
        run_rebuild(root, tmp_path / "out", options=stopped, on_progress=stop)
    resumed = Options(state=tmp_path / "state", resume=True)
    with pytest.raises(UsageError, match="another run"):
        run_rebuild(root, tmp_path / "out", RebuildScope(index=False), resumed)
    (tmp_path / "state").write_text("[]")
    with pytest.raises(ConfigFileError, match="is not the state of a rebuild"):
        run_rebuild(root, tmp_path / "out", options=resumed)
    (tmp_path / "state").write_text("no json")
    with pytest.raises(ConfigFileError, match="is not the state of a rebuild"):
        run_rebuild(root, tmp_path / "out", options=resumed)


def test_notes_are_refused_once_the_log_before_them_has_changed(tmp_path):
    root = make_store(tmp_path / "s", numbered(30))

    def stop(_done: int, _total: int) -> None:
        if (tmp_path / "state").exists():
            raise Stop

    with pytest.raises(Stop):
        run_rebuild(
            root, tmp_path / "out", options=Options(state=tmp_path / "state", state_interval=1), on_progress=stop
        )
    make_store(tmp_path / "other", numbered(30, topic="U"))
    shutil.rmtree(root / "commitlog")
    (tmp_path / "other" / "commitlog").rename(root / "commitlog")
    with pytest.raises(
        UsageError, match=r"the log has changed before physical offset \d+.* start again without --resume"
    ):
        run_rebuild(root, tmp_path / "out", options=Options(state=tmp_path / "state", resume=True))


def test_notes_hold_no_more_than_json(tmp_path):
    root = make_store(tmp_path / "s", [*numbered(3), record("a/b"), *numbered(1, first=9)])
    seen = []

    def look(_done: int, _total: int) -> None:
        if (tmp_path / "state").exists():
            seen.append(json.loads((tmp_path / "state").read_text()))

    run_rebuild(root, tmp_path / "out", options=Options(state=tmp_path / "state", state_interval=1), on_progress=look)
    assert seen[0]["state"]["unwritable"] == [1, [["a/b", 0]]]
    assert seen[0]["state"]["queues"][0][2]["held"] is not None


@pytest.mark.parametrize("place", ["s/new", "s/commitlog/new", "s"])
def test_nothing_is_written_into_the_store(tmp_path, place):
    root = make_store(tmp_path / "s", numbered(3))
    with pytest.raises(UsageError, match="outside"):
        run_rebuild(root, tmp_path / place)


def test_a_directory_that_holds_something_is_refused(tmp_path):
    root = make_store(tmp_path / "s", numbered(3))
    (tmp_path / "out").mkdir()
    run_rebuild(root, tmp_path / "out")
    with pytest.raises(UsageError, match="consumequeue"):
        run_rebuild(root, tmp_path / "out")
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="file"):
        run_rebuild(root, tmp_path / "file")


def test_names_of_index_files_ascend_where_times_do_not(tmp_path):
    made = [record("T", 0, n, props={"KEYS": " ".join("abcdefgh")}, stored=1_700_000_000_000 - n) for n in range(40)]
    result = run_rebuild(make_store(tmp_path / "s", made), tmp_path / "out")
    names = sorted(path.name for path in (tmp_path / "out" / "index").iterdir())
    assert names == result.index_files
    assert len(names) == 6
    with mqtool.open(make_store(tmp_path / "t", made), SIZES) as store:
        assert store.disk_index_files() == []
    times = [IndexFile(tmp_path / "out" / "index" / name).header.begin_timestamp for name in names]
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize("stored", [-(1 << 62), 0, (1 << 62)])
def test_times_beyond_the_calendar_have_names_too(tmp_path, stored):
    result = run_rebuild(make_store(tmp_path / "s", numbered(2, stored=stored)), tmp_path / "out")
    assert [len(name) for name in result.index_files] == [17]


def test_the_output_of_a_run_that_begins_anew_is_removed(tmp_path):
    root = copy_store("bcq-5.5.0", tmp_path)
    for kind in ("batchconsumequeue", "config"):
        for path in sorted((root / kind).rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
        (root / kind).rmdir()
    with mqtool.open(root) as store:
        rebuild(store, tmp_path / "out", settings_of(store))
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["batchconsumequeue", "index"]
    assert job.KINDS[0] == "consumequeue"


@pytest.mark.parametrize("wanted", [None, RebuildScope(index=False)], ids=["all", "queues"])
@pytest.mark.parametrize("interval", [1, 25_000], ids=["every batch", "some batches"])
def test_a_run_stopped_at_any_batch_goes_on_to_the_same_bytes(wanted, interval, tmp_path, monkeypatch):
    """Units that wait for the next one are kept, and queue files from after the saved state are removed."""
    monkeypatch.setattr(segment_bytes, "WINDOW", 8192)
    body = bytes(3000)
    monkeypatch.setattr(FileSequence, "BUFFER", 1)
    made = [*numbered(3, body=body), *numbered(10, first=9, body=body), *numbered(1, first=40, body=body)]
    root = make_store(tmp_path / "s", made)
    settings = {**SIZES, "mappedFileSizeConsumeQueue": 60}
    waiting = 0
    with mqtool.open(root, settings) as store:
        rebuild(store, tmp_path / "whole", settings_of(store), wanted)
        for stop_after in range(1, 9):
            state, out = tmp_path / f"state{stop_after}", tmp_path / f"out{stop_after}"
            options = Options(state=state, state_interval=interval)
            with contextlib.suppress(Stop):
                rebuild(store, out, settings_of(store), wanted, options, on_progress=stop_at(stop_after))
            if state.exists():
                (queue,) = json.loads(state.read_text())["state"]["queues"]
                waiting += queue[2]["held"] is not None
                rebuild(store, out, settings_of(store), wanted, Options(state=state, resume=True))
                assert tree(out) == tree(tmp_path / "whole"), stop_after
                assert not state.exists()
    assert waiting > 0 or interval > 1


def test_a_state_is_left_aside_by_a_run_that_does_not_resume_and_refused_where_it_states_nothing(tmp_path):
    root, state = make_store(tmp_path / "s", numbered(30)), tmp_path / "state"
    with pytest.raises(Stop):
        run_rebuild(root, tmp_path / "out", options=Options(state=state, state_interval=1), on_progress=stop_at(2))
    saved = json.loads(state.read_text())
    run_rebuild(root, tmp_path / "whole", options=Options(state=state))
    assert offsets_of(root, tmp_path / "whole") == list(range(30))
    assert not state.exists()
    del saved["state"]
    state.write_text(json.dumps(saved))
    with pytest.raises(ConfigFileError, match="is not the state of a rebuild: it has no state"):
        run_rebuild(root, tmp_path / "out", options=Options(state=state, resume=True))


def test_files_written_in_small_parts_have_the_same_bytes(tmp_path, monkeypatch):
    root = make_store(tmp_path / "s", numbered(60))
    run_rebuild(root, tmp_path / "one")
    monkeypatch.setattr(sink, "BUFFERED", 100)
    monkeypatch.setattr(FileSequence, "BUFFER", 40)
    run_rebuild(root, tmp_path / "two")
    assert tree(tmp_path / "two") == tree(tmp_path / "one")


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (shutil.rmtree, "wrote 2000 bytes there, it is missing"),
        (lambda out: next((out / "consumequeue/T/0").iterdir()).unlink(), "wrote 2000 bytes there, it is missing"),
        (lambda out: os.truncate(next((out / "consumequeue/T/0").iterdir()), 60), "there, found 60 bytes"),
        (lambda out: next((out / "index").iterdir()).unlink(), "wrote 1440 bytes there, it is missing"),
    ],
    ids=["all", "a queue file", "the end of a queue file", "an index file"],
)
def test_a_run_whose_files_are_gone_is_not_resumed(harm, words, tmp_path, monkeypatch):
    monkeypatch.setattr(segment_bytes, "WINDOW", 8192)
    root, state = make_store(tmp_path / "s", numbered(20, body=bytes(3000))), tmp_path / "state"
    with pytest.raises(Stop):
        run_rebuild(root, tmp_path / "out", options=Options(state=state, state_interval=1), on_progress=stop_at(5))
    before = state.read_bytes()
    harm(tmp_path / "out")
    with pytest.raises(UsageError, match=words):
        run_rebuild(root, tmp_path / "out", options=Options(state=state, resume=True))
    assert state.read_bytes() == before


def test_a_delay_that_is_no_number_is_reported_and_the_message_keeps_its_unit(tmp_path, monkeypatch):
    monkeypatch.setattr(segment_bytes, "WINDOW", 8192)
    delays = ["2", "soon", "2", "2"]
    made = [
        record("SCHEDULE_TOPIC_XXXX", 1, n, props={"DELAY": delay, "REAL_TOPIC": "T"}, body=bytes(3000))
        for n, delay in enumerate(delays)
    ]
    root, state = make_store(tmp_path / "s", made), tmp_path / "state"
    whole = run_rebuild(root, tmp_path / "whole")
    (odd,) = whole.oddities.items
    assert (odd.physical_offset, odd.detail) == (made[0].total_size, "DELAY is not a number: 'soon'")
    assert (whole.is_complete, whole.units) == (False, 4)
    with pytest.raises(Stop):
        run_rebuild(root, tmp_path / "out", options=Options(state=state, state_interval=1), on_progress=stop_at(2))
    resumed = run_rebuild(root, tmp_path / "out", options=Options(state=state, resume=True))
    assert (resumed.oddities.items, resumed.oddities.count) == ([odd], 1)
    assert tree(tmp_path / "out") == tree(tmp_path / "whole")


@pytest.mark.parametrize("place", [0, 1], ids=["the first record", "a later one"])
def test_each_index_file_of_a_record_with_more_keys_than_a_file_has_room_for_is_rebuilt_alone(place, tmp_path):
    sizes = {**SIZES, "maxHashSlotNum": 5, "maxIndexNum": 5}  # four entries
    keys = ["a b", "c d e"]
    keys.insert(place, " ".join(f"m{number}" for number in range(14)))
    made = [record("T", 0, number, props={"KEYS": words}) for number, words in enumerate(keys)]
    root = make_store(tmp_path / "s", made)
    with mqtool.open(root, sizes) as store:
        rebuild(store, tmp_path / "whole", settings_of(store), RebuildScope(queues=False))
    shutil.copytree(tmp_path / "whole" / "index", root / "index")
    whole = tree(tmp_path / "whole")
    assert len(whole) == 5
    with mqtool.open(root, sizes) as store:
        for path in whole:
            name = path.removeprefix("index/")
            rebuild_index_file(store, tmp_path / name, settings_of(store), name)
            assert tree(tmp_path / name) == {path: whole[path]}


def test_a_range_leaves_damage_outside_of_it_out(tmp_path):
    root = make_store(tmp_path / "s", numbered(40))
    segment = root / "commitlog" / f"{0:020d}"
    data = bytearray(segment.read_bytes())
    size = struct.unpack_from(">i", data)[0]
    for number in (2, 20, 35):
        data[number * size : number * size + 8] = b"\xee" * 8
    segment.write_bytes(data)
    result = run_rebuild(root, tmp_path / "out", RebuildScope(start=10 * size, end=30 * size))
    assert [(one.start, one.end) for one in result.damage.items] == [(20 * size, 21 * size)]
    assert result.units == 19


def test_cuts_behind_the_end_of_a_range_make_no_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "PART_BYTES", 20_000)
    root = make_store(tmp_path / "s", numbered(60, body=bytes(3000)), segment=1 << 20)
    with mqtool.open(root) as store:
        log = store.commit_log
        whole = list(parts.parts_of(log, RebuildScope(), cut=True))
        some = list(parts.parts_of(log, RebuildScope(end=100_000), cut=True))
    assert len(whole) > 5
    assert some[:-1] == [part for part in whole if part.end is not None and part.end < 100_000]
    assert (some[-1].start, some[-1].end) == (some[-2].end, None)


def test_units_that_wait_are_written_when_they_are_many(tmp_path, monkeypatch):
    root = make_store(tmp_path / "s", numbered(300))
    run_rebuild(root, tmp_path / "whole")
    flushed = []
    flush = sink.Sink.flush
    monkeypatch.setattr(sink, "BUFFERED", 100)
    monkeypatch.setattr(sink.Sink, "flush", lambda one: (flushed.append(one), flush(one)))
    run_rebuild(root, tmp_path / "out")
    assert flushed
    assert tree(tmp_path / "out") == tree(tmp_path / "whole")


def test_a_state_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    root, state = make_store(tmp_path / "s", numbered(3)), tmp_path / "state"

    def refuse(_file):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(job.ResumeFile, "load", refuse)
    with pytest.raises(StoreError, match=f"{state}: cannot be read: Input/output error"):
        run_rebuild(root, tmp_path / "out", options=Options(state=state))
