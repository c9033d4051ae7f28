"""The watermark adds exactly what is new, and notices a log that is not the one it knows."""

import json
import shutil
from pathlib import Path

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from mqtool.errors import ConfigFileError, ExportError, UsageError
from mqtool.export import plain
from mqtool.export.commit import load_state
from mqtool.export.parquet import WriteOptions
from mqtool.export.plain import LocalRunner, Patience, follow
from mqtool.export.run import ExportRequest
from mqtool.export.schema import ALL_COLUMNS, ReadRequest
from mqtool.export.sources import resolve
from mqtool.store.log.selection import Selection
from tests.support import lake
from tests.support.builder import StoreBuilder
from tests.support.stores import copy_store

NAME = "rollover-5.5.0"
ENDS = lake.record_ends(NAME)
ALL = ReadRequest(every_class=True)


class Growing:
    """A store whose log is cut and grown, and an incremental export of it."""

    def __init__(self, tmp_path: Path) -> None:
        self.store = copy_store(NAME, tmp_path)
        self.target = tmp_path / "lake"
        self.state = tmp_path / "lake.state"

    def grow(self, records: int) -> None:
        lake.grow(NAME, self.store, ENDS[records - 1])

    def export(self, **wanted) -> bool:
        wanted = {"read": ALL, "state": str(self.state), **wanted}
        return lake.run_export(f"b={self.store}", self.target, **wanted).committed

    def rows(self) -> list[dict]:
        return lake.in_log_order(lake.rows(self.target))


@pytest.fixture
def growing(tmp_path: Path) -> Growing:
    return Growing(tmp_path)


EXPECTED = lake.expected_rows(NAME, every_class=True, broker="b")


def test_each_run_adds_exactly_what_is_new(growing):
    for records in (1, 2, 40, 41, 97, len(ENDS)):
        growing.grow(records)
        assert growing.export()
        assert growing.rows() == EXPECTED[:records]
    assert [len(lake.rows(growing.target, table)) for table in ("damage", "rejected_values")] == [0, 0]


def test_a_log_under_another_name_is_not_exported_twice(growing):
    growing.grow(40)
    growing.export()
    growing.grow(90)
    with pytest.raises(ExportError, match=r"this log was read before under the name 'b', .* Give it as b="):
        lake.run_export(f"c={growing.store}", growing.target, read=ALL, state=str(growing.state))
    assert growing.export()
    assert growing.rows() == EXPECTED[:90]


def test_a_run_without_news_writes_nothing(growing):
    growing.export()
    before = sorted(path.name for path in growing.target.rglob("*"))
    assert not growing.export()
    assert sorted(path.name for path in growing.target.rglob("*")) == before


def test_a_record_that_was_being_written_is_added_when_it_is_whole(growing):
    growing.grow(50)
    lake.grow(NAME, growing.store, ENDS[50] - 10)
    (growing.store / "abort").touch()
    growing.export()
    assert growing.rows() == EXPECTED[:50]
    growing.grow(60)
    growing.export()
    assert growing.rows() == EXPECTED[:60]


def test_a_body_that_was_being_written_is_added_when_it_is_whole(growing):
    growing.grow(50)
    segment = max((growing.store / "commitlog").iterdir())
    start = EXPECTED[49]["physical_offset"] - int(segment.name)
    data = bytearray(segment.read_bytes())
    data[start + 88 : start + 92] = bytes(4)
    segment.write_bytes(data)
    (growing.store / "abort").touch()
    growing.export()
    assert growing.rows() == EXPECTED[:49]
    assert lake.rows(growing.target, "damage") == []
    growing.grow(60)
    growing.export()
    assert growing.rows() == EXPECTED[:60]


def test_retention_that_removed_only_exported_segments_is_no_loss(growing):
    growing.grow(100)
    growing.export()
    for segment in sorted((growing.store / "commitlog").iterdir())[:2]:
        segment.unlink()
    assert not growing.export()
    assert growing.rows() == EXPECTED[:100]


def test_retention_that_overtook_the_export_is_reported_as_damage(growing):
    growing.grow(30)
    growing.export()
    mark = load_state(str(growing.state)).marks["b"].offset
    growing.grow(len(ENDS))
    kept = [s for s in sorted((growing.store / "commitlog").iterdir()) if int(s.name) > mark]
    for segment in set((growing.store / "commitlog").iterdir()) - set(kept[1:]):
        segment.unlink()
    assert growing.export()
    first = int(kept[1].name)
    assert growing.rows() == [r for r in EXPECTED if r["physical_offset"] < mark or r["physical_offset"] >= first]
    lost = lake.rows(growing.target, "damage")
    assert [(row["start"], row["end"]) for row in lost] == [(mark, first)]
    assert "expired" in lost[0]["detail"]


def test_a_log_that_ends_before_the_watermark_is_refused(growing):
    growing.grow(60)
    growing.export()
    growing.grow(59)
    with pytest.raises(ExportError, match="the log is shorter than at the last export"):
        growing.export()
    assert growing.rows() == EXPECTED[:60]


def test_a_log_that_was_cut_back_and_written_on_is_refused(growing):
    growing.grow(60)
    growing.export()
    growing.grow(80)
    record = EXPECTED[58]
    segment = max(s for s in (growing.store / "commitlog").iterdir() if int(s.name) <= record["physical_offset"])
    data = bytearray(segment.read_bytes())
    data[record["physical_offset"] - int(segment.name) + 59] ^= 1  # store timestamp
    segment.write_bytes(data)
    with pytest.raises(ExportError, match="the log is not the one that was exported"):
        growing.export()
    assert growing.rows() == EXPECTED[:60]


def test_queues_that_were_rebuilt_change_nothing(growing):
    growing.export()
    shutil.rmtree(growing.store / "consumequeue", ignore_errors=True)
    shutil.rmtree(growing.store / "index", ignore_errors=True)
    assert not growing.export()
    assert growing.rows() == EXPECTED


@pytest.mark.parametrize(
    "changed",
    [
        {"read": ReadRequest()},
        {"read": ReadRequest(every_class=True, columns=("topic", "body"))},
        {"write": WriteOptions(("topic",))},
    ],
    ids=["include", "columns", "partitions"],
)
def test_a_shape_that_changed_is_refused(growing, changed):
    growing.grow(10)
    growing.export()
    growing.grow(20)
    with pytest.raises(ExportError, match="export to a new directory"):
        growing.export(**changed)
    assert growing.rows() == EXPECTED[:10]


def test_columns_that_are_added_are_null_in_earlier_rows(growing):
    """As after an upgrade: the state of an older release does not know a column that a newer one writes."""
    added = "body_crc"
    older = ReadRequest(every_class=True, columns=tuple(name for name in ALL_COLUMNS if name != added))
    growing.grow(40)
    growing.export(read=older)
    growing.grow(90)
    assert growing.export()
    schema = pq.read_schema(max(lake.files(growing.target)))
    found = ds.dataset(growing.target / "messages", schema=schema).to_table().to_pylist()
    assert any(row[added] for row in EXPECTED[40:90])
    assert lake.in_log_order(found) == [row | {added: None} for row in EXPECTED[:40]] + EXPECTED[40:90]
    assert load_state(str(growing.state)).shape["columns"] == list(ALL_COLUMNS)
    with pytest.raises(ExportError, match="columns was"):
        growing.export(read=older)


def test_a_directory_with_an_export_is_refused_without_a_state(growing):
    growing.export(state=None)
    with pytest.raises(ExportError, match="contains an export already"):
        growing.export(state=None)
    with pytest.raises(ExportError, match="written without --state"):
        growing.export()
    assert growing.rows() == EXPECTED


def test_a_directory_with_something_else_is_refused(growing):
    growing.target.mkdir()
    (growing.target / "notes.txt").write_text("mine")
    with pytest.raises(ExportError, match=r"contains .notes\.txt. and no export"):
        growing.export()
    assert [path.name for path in growing.target.iterdir() if path.name != "_mqtool"] == ["notes.txt"]


def test_the_state_of_another_export_is_refused(growing, tmp_path):
    growing.grow(10)
    growing.export()
    other = tmp_path / "elsewhere"
    lake.run_export(f"b={growing.store}", other, read=ALL, state=str(tmp_path / "other.state"))
    with pytest.raises(ExportError, match="does not belong to the state"):
        growing.export(state=str(tmp_path / "other.state"))


def test_a_lost_state_file_is_made_again_from_the_directory(growing):
    growing.grow(10)
    growing.export()
    growing.state.unlink()
    growing.grow(20)
    growing.export()
    assert growing.rows() == EXPECTED[:20]
    assert load_state(str(growing.state)).sequence == 2


def test_the_state_of_an_export_that_is_not_there_is_refused_and_kept(growing, tmp_path):
    growing.grow(10)
    growing.export()
    before = growing.state.read_bytes()
    growing.target.rename(tmp_path / "away")
    growing.grow(20)
    with pytest.raises(ExportError, match=r"contains no export, but the state .*/lake\.state continues one of 1 run"):
        growing.export()
    assert growing.state.read_bytes() == before
    shutil.rmtree(growing.target)
    growing.target.mkdir()
    (tmp_path / "away" / "_mqtool").rename(growing.target / "_mqtool")  # the files may be moved to another place
    growing.export()
    assert growing.rows() == EXPECTED[10:20]


def test_a_directory_that_is_replaced_by_an_older_copy_gets_what_the_copy_lacks(growing, tmp_path):
    growing.grow(10)
    growing.export()
    shutil.copytree(growing.target, tmp_path / "copy")
    growing.grow(20)
    growing.export()
    shutil.rmtree(growing.target)
    (tmp_path / "copy").rename(growing.target)
    growing.grow(30)
    growing.export()
    assert growing.rows() == EXPECTED[:30]
    assert load_state(str(growing.state)).sequence == 3  # names of files of the lost commit are not used again


def test_a_state_file_that_is_none_is_named(growing):
    growing.state.write_text("{}")
    with pytest.raises(ConfigFileError, match=r"lake\.state: is not the state of an export"):
        growing.export()
    growing.state.write_bytes(b"\x00")
    with pytest.raises(ConfigFileError, match=r"lake\.state: is not the state of an export"):
        growing.export()


@pytest.mark.parametrize(
    "change",
    [{"marks": None}, {"marks": {"b": {"x": 1}}}, {"marks": {"b": 5}}, {"sequence": "last"}, {"shape": 7}],
    ids=str,
)
def test_a_state_file_with_other_fields_is_named_and_stays(growing, change):
    growing.grow(10)
    growing.export()
    document = json.loads(growing.state.read_text()) | change
    growing.state.write_text(json.dumps(document))
    with pytest.raises(ConfigFileError, match=r"lake\.state: is not the state of an export"):
        growing.export()
    assert json.loads(growing.state.read_text()) == document


@pytest.mark.parametrize("change", [{"files": [{"x": 1}]}, {"removed": None}, {"stores": 5}, {"totals": None}], ids=str)
def test_a_manifest_with_other_fields_is_named(growing, change):
    growing.grow(10)
    growing.export()
    growing.state.unlink()
    (path,) = (growing.target / "_mqtool").glob("commit-*.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    growing.grow(20)
    with pytest.raises(ConfigFileError, match="is not the manifest of an export"):
        growing.export()


def test_an_incremental_export_chooses_its_offsets_itself(growing):
    with pytest.raises(UsageError, match="determines its offsets itself"):
        growing.export(read=ReadRequest(Selection(start=1), every_class=True))


def test_two_exports_into_one_directory_at_once_are_refused(growing):
    from mqtool.errors import StoreLockedError
    from mqtool.export.target import LocalTarget

    growing.target.mkdir()
    with LocalTarget(str(growing.target)).lock("_mqtool/lock"), pytest.raises(StoreLockedError, match="another export"):
        growing.export()


def test_a_log_that_was_cut_back_is_rewound_to_where_both_agree(growing):
    for records in (30, 60, 90):
        growing.grow(records)
        growing.export()
    growing.grow(70)
    assert growing.export(rewind=True)
    assert growing.rows() == EXPECTED[:70]
    growing.grow(len(ENDS))
    growing.export()
    assert growing.rows() == EXPECTED


def rewritten(growing, first: int) -> list[dict]:
    """Makes the log hold other messages from a record on, as after a recovery; returns the rows expected."""
    expected = [dict(row) for row in EXPECTED]
    for row in expected[first:]:
        segment = max(s for s in (growing.store / "commitlog").iterdir() if int(s.name) <= row["physical_offset"])
        data = bytearray(segment.read_bytes())
        at = row["physical_offset"] - int(segment.name) + 16
        row["flag"] += 1
        data[at : at + 4] = row["flag"].to_bytes(4, "big", signed=True)
        segment.write_bytes(data)
    return expected


def test_a_log_that_was_written_on_after_a_cut_is_rewound(growing):
    for records in (30, 60, 90):
        growing.grow(records)
        growing.export()
    growing.grow(len(ENDS))
    expected = rewritten(growing, 50)
    assert growing.export(rewind=True)
    assert growing.rows() == expected
    assert not growing.export(rewind=True)


def test_a_log_that_agrees_with_nothing_is_exported_anew(growing):
    growing.grow(40)
    growing.export()
    growing.grow(len(ENDS))
    expected = rewritten(growing, 0)
    growing.export(rewind=True)
    assert growing.rows() == expected


def test_rewinding_twice_takes_nothing_back_twice(growing):
    for records in (30, 90, 60, 80, 50, len(ENDS)):
        growing.grow(records)
        growing.export(rewind=True)
        assert growing.rows() == EXPECTED[:records]


def test_a_commit_whose_rows_a_rewind_removed_is_not_where_export_and_log_agree(growing):
    for records in (30, 60):
        growing.grow(records)
        growing.export()
    growing.grow(80)
    expected = rewritten(growing, 40)
    growing.export(rewind=True)
    assert growing.rows() == expected[:80]
    growing.grow(90)  # the original log, restored
    assert growing.export(rewind=True)
    assert growing.rows() == EXPECTED[:90]


def test_a_commit_without_rows_whose_predecessor_a_rewind_removed_is_not_where_export_and_log_agree(growing):
    exact = ReadRequest(Selection(topics=("Exact",)), every_class=True)
    numbers = [number for number, row in enumerate(EXPECTED) if row["topic"] == "Exact"]
    filler = next(number for number in numbers if number + 1 not in numbers) + 1
    for records in (1, filler, filler + 1):  # the third commit has no rows
        growing.grow(records)
        growing.export(read=exact)
    growing.grow(len(ENDS))
    rewritten(growing, 1)
    growing.export(read=exact, rewind=True)
    growing.grow(len(ENDS))
    growing.export(read=exact, rewind=True)
    assert growing.rows() == [row for row in EXPECTED if row["topic"] == "Exact"]


def test_a_log_that_was_emptied_and_restored_is_exported_again(growing):
    growing.grow(40)
    growing.export()
    kept = growing.store.rename(growing.store.with_name("kept"))
    (growing.store / "commitlog").mkdir(parents=True)
    growing.export(rewind=True)
    assert growing.rows() == []
    shutil.rmtree(growing.store)
    kept.rename(growing.store)
    growing.grow(50)
    growing.export()
    assert growing.rows() == EXPECTED[:50]


def test_a_rewind_without_new_rows_that_died_after_its_commit_is_completed(growing, monkeypatch):
    for records in (30, 60):
        growing.grow(records)
        growing.export()
    growing.grow(30)

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("mqtool.export.commit.publish", dies)
        with pytest.raises(KeyboardInterrupt):
            growing.export(rewind=True)
    assert growing.rows() == EXPECTED[:60]
    growing.export()
    assert growing.rows() == EXPECTED[:30]


def test_rows_of_a_segment_that_retention_deleted_stay_when_the_log_is_rewound(growing):
    wanted = {"write": WriteOptions(("topic", "date")), "rewind": True}
    for records in (60, 90):
        growing.grow(records)
        growing.export(**wanted)
    growing.grow(50)
    min((growing.store / "commitlog").iterdir()).unlink()
    assert growing.export(**wanted)
    assert growing.rows() == EXPECTED[:50]
    assert all(lake.is_sorted(path) for path in lake.files(growing.target))
    for records in (100, 95):
        growing.grow(records)
        for segment in sorted((growing.store / "commitlog").iterdir())[:2]:
            segment.unlink()
        assert growing.export(**wanted)
        assert growing.rows() == EXPECTED[:records]


@pytest.mark.parametrize(
    ("read", "reason"),
    [
        (ALL, "its first exported record is not in the log"),
        (ReadRequest(every_class=True, columns=("topic", "body")), "the export has no column physical_offset"),
        (ReadRequest(every_class=True, columns=("physical_offset",)), "its first exported record is not in the log"),
    ],
    ids=["another log", "no offsets", "nothing to compare"],
)
def test_what_could_not_be_exported_again_is_not_taken_back(growing, read, reason):
    growing.grow(60)
    growing.export(read=read)
    before = lake.rows(growing.target)
    growing.grow(50)
    min((growing.store / "commitlog").iterdir()).unlink()
    first = min(int(segment.name) for segment in (growing.store / "commitlog").iterdir())
    row = next(row for row in EXPECTED if row["physical_offset"] >= first)
    with (growing.store / "commitlog" / f"{first:020}").open("r+b") as file:
        file.seek(row["physical_offset"] - first + 56)
        file.write(bytes(8))  # another store timestamp
    with pytest.raises(ExportError, match=f"now begins at {first}: {reason}, so mqtool cannot know whether it is"):
        growing.export(read=read, rewind=True)
    assert lake.rows(growing.target) == before


def test_of_several_stores_only_the_one_that_was_cut_is_rewound(growing, tmp_path):
    other = copy_store("orders-5.5.0", tmp_path / "other")
    stores = [f"b={growing.store}", f"c={other}"]
    wanted = {"read": ALL, "state": str(growing.state), "rewind": True}
    for records in (60, 40):
        growing.grow(records)
        lake.run_export(stores, growing.target, **wanted)
        rows = growing.rows()
        assert [row for row in rows if row["broker"] == "b"] == EXPECTED[:records]
        expected = lake.expected_rows("orders-5.5.0", every_class=True, broker="c")
        assert [row for row in rows if row["broker"] == "c"] == expected


def test_of_several_stores_each_that_was_cut_is_rewound(growing, tmp_path):
    other = Growing(tmp_path / "other")
    builder = StoreBuilder(segment_size=4096)
    for number in range(60):
        builder.put(b"x" * 100, topic=f"T{number % 3}")
    shutil.rmtree(other.store)
    builder.write(other.store)
    stores, ends = [f"b={growing.store}", f"c={other.store}"], [put.end for put in builder.puts]
    wanted = {"read": ALL, "state": str(growing.state), "rewind": True}
    for first, second in ((60, 50), (40, 20)):
        growing.grow(first)
        for base in builder.segments:
            data = builder.segments[base][: max(0, ends[second - 1] - base)]
            (other.store / "commitlog" / f"{base:020}").write_bytes(data.ljust(4096, b"\0"))
        lake.run_export(stores, growing.target, **wanted)
        rows = growing.rows()
        assert [row for row in rows if row["broker"] == "b"] == EXPECTED[:first]
        found = [row["physical_offset"] for row in rows if row["broker"] == "c"]
        assert found == [put.physical_offset for put in builder.puts[:second]]


def test_following_tells_of_the_first_run_and_of_those_with_news(growing):
    """Records come before the third and the fifth of six runs."""
    runs = iter([(30, True), (40, True), (40, True), (50, True), (50, False)])
    growing.grow(30)

    def wait() -> bool:
        records, goes_on = next(runs)
        growing.grow(records)
        return goes_on

    sources = tuple(resolve([f"b={growing.store}"]))
    request = ExportRequest(sources, str(growing.target), read=ALL, state=str(growing.state))
    results = list(follow(request, LocalRunner(1), wait))
    assert [result.committed for result in results] == [True, True, True]
    assert [sum(result.manifest.totals["topics"].values()) for result in results] == [30, 10, 10]
    assert growing.rows() == EXPECTED[:50]


@pytest.mark.parametrize(
    ("patience", "commits"),
    [
        (Patience(min_bytes=18_000, max_wait=3600), [30, 75, 110]),  # records have about 500 bytes
        (Patience(max_wait=0), [30, 40, 50, 75, 80, 110]),
        (Patience(max_wait=3600), [30]),
        (Patience(min_bytes=1 << 40, max_wait=60), [30, 75, 80, 110]),  # half an hour passes before the 75th comes
    ],
    ids=["size", "at once", "age", "age or size"],
)
def test_following_waits_for_a_size_or_an_age(growing, monkeypatch, patience, commits):
    newest, late = EXPECTED[0]["store_timestamp"].timestamp(), 0
    monkeypatch.setattr(plain.time, "time", lambda: newest + late)
    steps = iter([40, 50, 75, 80, 110])
    growing.grow(30)

    def wait() -> bool:
        nonlocal late
        records = next(steps, None)
        if records is not None:
            growing.grow(records)
            late = 1800 if records >= 75 else 1
        return records is not None

    request = ExportRequest(
        tuple(resolve([f"b={growing.store}"])), str(growing.target), read=ALL, state=str(growing.state)
    )
    seen = []
    for _ in follow(request, LocalRunner(1), wait, patience):
        seen.append(len(growing.rows()))
    assert seen == commits


@pytest.mark.parametrize("place", ["lake", "state"])
def test_nothing_is_ever_written_into_a_store(growing, place):
    inside = growing.store / "config" / "here"
    growing.target, growing.state = (inside, growing.state) if place == "lake" else (growing.target, inside)
    with pytest.raises(UsageError, match="is inside the store"):
        growing.export()
    assert not inside.exists()


def test_a_log_of_another_segment_size_is_refused(tmp_path):
    for name, size, count in (("store", 4096, 200), ("other", 12288, 300)):
        builder = StoreBuilder(segment_size=size)
        for number in range(count):
            builder.put(b"body %d" % number, keys=f"k{number}")
        builder.write(tmp_path / name)
    export = {"read": ALL, "state": str(tmp_path / "state")}
    assert lake.run_export(f"b={tmp_path / 'store'}", tmp_path / "lake", **export).committed
    shutil.rmtree(tmp_path / "store")
    (tmp_path / "other").rename(tmp_path / "store")
    with pytest.raises(ExportError, match=r"expected a segment at \d+, found one at \d+: another log"):
        lake.run_export(f"b={tmp_path / 'store'}", tmp_path / "lake", **export)


@pytest.mark.parametrize("selection", [Selection(limit=5), Selection(keys=("k",))])
def test_an_export_selects_by_what_a_log_knows_of_each_record(selection):
    with pytest.raises(UsageError, match="selects only by topic, queue, offset and time"):
        ReadRequest(selection)


def test_an_export_of_no_store_is_refused():
    with pytest.raises(UsageError, match="at least one store"):
        resolve([])
