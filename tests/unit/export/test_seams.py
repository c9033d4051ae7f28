"""What an export does where a file, a library, a worker or a value is not what it was."""

import errno
import io
import os
import re
import sys
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace

import pyarrow as pa
import pytest

from mqtool.choices import TableFormat
from mqtool.commands import with_extra
from mqtool.errors import ExportError, StoreError, UnavailableError, UsageError, WorkerError
from mqtool.export import commit as protocol
from mqtool.export import plain, task
from mqtool.export.parquet import TableWriter, WriteOptions
from mqtool.export.plain import LocalRunner, export
from mqtool.export.plan import log_end, partitions, plan_store
from mqtool.export.rows import as_json
from mqtool.export.run import ExportRequest
from mqtool.export.schema import Body, ReadRequest, Table
from mqtool.export.sources import Source, resolve
from mqtool.export.tables import require
from mqtool.export.target import LocalTarget, RemoteTarget, target_of
from mqtool.export.task import read_partition
from mqtool.formats.commit_log import SysFlag
from mqtool.records.damage import Damage, DamageKind
from mqtool.store import open_store
from mqtool.store.log.commit_log import CommitLog
from mqtool.store.log.cuts import Cuts
from mqtool.store.log.selection import Selection
from tests.support import lake
from tests.support.builder import StoreBuilder
from tests.support.stores import copy_store

INNER_BATCH = int(SysFlag.INNER_BATCH)


@pytest.fixture
def builder():
    made = StoreBuilder(segment_size=4096)
    for _ in range(60):
        made.put(b"x" * 200)
    return made


def planned(path, request):
    source = Source("b", str(path))
    with source.open() as store:
        (one,) = partitions([plan_store(store, source, request.selection)])
    return one


def read(partition, request):
    """Physical offsets of the rows, and the damage."""
    items = list(read_partition(partition, request))
    damage = [item for item in items if isinstance(item, Damage)]
    rows = [
        place for item in items if not isinstance(item, Damage) for place in item.keys["physical_offset"].to_pylist()
    ]
    return rows, damage


def overwrite(path, builder, put):
    """Destroys the header of a record."""
    base = put.physical_offset // builder.segment_size * builder.segment_size
    with (path / "commitlog" / f"{base:020}").open("r+b") as file:
        file.seek(put.physical_offset - base)
        file.write(b"?" * 8)


def test_a_body_that_is_still_compressed_is_no_json():
    bodies = pa.array([b"{}", b"[1]", b"{"], pa.binary())
    found, bad = as_json(bodies, pa.array([False, True, False]))
    assert found.to_pylist() == ["{}", None, None]
    assert bad[1] == "the body cannot be decompressed"
    assert bad[2].startswith("no JSON: ")


def test_a_last_record_that_cannot_be_read_again_is_not_complete(builder, tmp_path, monkeypatch):
    path = builder.write(tmp_path / "store")
    (path / "abort").touch()
    with open_store(path) as store:
        assert log_end(store, Cuts(store)) == builder.end

        def refuse(_log, _offset):
            raise StoreError("cannot be read: Input/output error", path)

        monkeypatch.setattr(CommitLog, "record", refuse)
        assert log_end(store, Cuts(store)) == builder.puts[-1].physical_offset


def test_damage_outside_of_the_range_is_not_reported(builder, tmp_path):
    path = builder.write(tmp_path / "store")
    for number in (2, 30):
        overwrite(path, builder, builder.puts[number])
    start, end = builder.puts[4].physical_offset, builder.puts[40].physical_offset
    request = ReadRequest(Selection.of(start=start, end=end))
    rows, damage = read(planned(path, ReadRequest()), request)
    assert rows == [put.physical_offset for at, put in enumerate(builder.puts) if 4 <= at < 40 and at != 30]
    assert [(one.start, one.end) for one in damage] == [(builder.puts[30].physical_offset, builder.puts[30].end)]


def test_a_segment_that_cannot_be_opened_is_an_error_and_one_that_is_gone_is_damage(builder, tmp_path, monkeypatch):
    path = builder.write(tmp_path / "store")
    request = ReadRequest()
    partition = planned(path, request)
    segment = path / "commitlog" / f"{4096:020}"
    segment.unlink()
    rows, damage = read(partition, request)
    assert rows == [put.physical_offset for put in builder.puts if put.physical_offset // 4096 != 1]
    assert [(one.kind, one.start, one.end) for one in damage] == [(DamageKind.MISSING, 4096, 8192)]
    segment.symlink_to(segment)
    with pytest.raises(StoreError, match=f"{segment.name}: cannot be opened"):
        read(partition, request)


def test_records_after_damage_are_found_without_the_store(builder, tmp_path):
    """A task may read the segments of its spans although the rest of the store is not there."""
    path = builder.write(tmp_path / "store")
    overwrite(path, builder, builder.puts[2])
    request = ReadRequest()
    partition = planned(path, request)
    elsewhere = SimpleNamespace(broker="b", open=lambda: open_store(tmp_path / "nowhere"))
    partition = SimpleNamespace(source=elsewhere, spans=partition.spans)
    rows, damage = read(partition, request)
    assert rows == [put.physical_offset for at, put in enumerate(builder.puts) if at != 2]
    assert [one.start for one in damage] == [builder.puts[2].physical_offset]


@pytest.mark.parametrize("columns", [("topic",), ("topic", "body"), ("topic", "body", "batch_index")], ids=str)
def test_an_inner_batch_that_cannot_be_taken_apart_is_rejected_where_its_body_is_wanted(columns, tmp_path):
    builder = StoreBuilder()
    builder.put(b"sound")
    broken = builder.put(b"no batch", sys_flag=INNER_BATCH)
    path = builder.write(tmp_path / "store")
    lake.run_export(f"b={path}", tmp_path / "lake", read=ReadRequest(columns=columns))
    assert [row["topic"] for row in lake.rows(tmp_path / "lake")] == ["Topic", "Topic"]
    if "body" not in columns:
        assert lake.rows(tmp_path / "lake", "rejected_values") == []
        return
    (value,) = lake.rows(tmp_path / "lake", "rejected_values")
    assert (value["physical_offset"], value["column"], value["value"]) == (broken.physical_offset, "body", b"no batch")
    assert value["reason"].startswith("the inner batch cannot be decoded: ")


def test_many_rejected_values_are_written_in_between(tmp_path, monkeypatch):
    monkeypatch.setattr(task, "LETTERS", 3)
    path = copy_store("orders-5.5.0", tmp_path)
    wanted = {"read": ReadRequest(body=Body.JSON, batch_bytes=20_000)}
    lake.run_export(f"b={path}", tmp_path / "lake", **wanted)
    found = lake.rows(tmp_path / "lake", "rejected_values")
    bad = [row["physical_offset"] for row in lake.in_log_order(lake.rows(tmp_path / "lake")) if row["body"] is None]
    assert len(bad) > 10
    assert [row["physical_offset"] for row in found] == bad


class Disk(io.BytesIO):
    """A file on a disk that may be full."""

    is_full = False

    def write(self, data):
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(data)

    def close(self):
        was_open = not self.closed
        super().close()
        if self.is_full and was_open:
            raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("is_full", [False, True])
def test_a_file_of_an_export_that_is_given_up_is_closed(is_full):
    disk = Disk()
    schema = pa.schema([("n", pa.int64())])
    target = SimpleNamespace(create=lambda _path: disk)
    writer = TableWriter(target, "staging", Table.MESSAGES, schema, "part", WriteOptions(row_group_bytes=1))
    writer.add(pa.record_batch([pa.array([1, 2, 3])], schema=schema))
    assert not disk.closed
    disk.is_full = is_full
    writer.abandon()
    writer.abandon()
    assert disk.closed


@pytest.mark.parametrize("kind", TableFormat)
def test_a_table_needs_its_library_and_a_directory(kind, tmp_path, monkeypatch):
    library = {TableFormat.DELTA: "deltalake", TableFormat.ICEBERG: "pyiceberg"}[kind]
    monkeypatch.setitem(sys.modules, library, None)
    words = f"{kind} tables need {library}: {with_extra(kind.value)}"
    with pytest.raises(UnavailableError, match=re.escape(words)):
        require(kind, LocalTarget(str(tmp_path)))
    with pytest.raises(
        UsageError, match="memory://bucket/lake: tables can only be written to local directories and s3:"
    ):
        require(kind, target_of("memory://bucket/lake"))


@pytest.fixture(params=["local", "remote"])
def target(request, tmp_path):
    if request.param == "local":
        return LocalTarget(str(tmp_path / "lake"))
    pytest.importorskip("fsspec")
    return RemoteTarget(f"memory://{tmp_path.name}/lake")


def test_every_target_moves_and_removes_what_is_there_and_no_more(target):
    assert target.names("a") == []
    assert target.read("a/one") is None
    assert target.write_new("a/one", b"1")
    assert not target.write_new("a/one", b"2")
    assert target.move({"a/one": "b/one"}) == []
    assert target.move({"a/one": "b/one"}) == []  # it was moved before
    assert target.read("b/one") == b"1"
    assert target.names("b") == ["one"]
    target.remove("b")
    target.remove("b")
    assert target.names("b") == []


def test_an_object_is_no_prefix_of_an_export(tmp_path):
    fs = pytest.importorskip("fsspec.implementations.memory").MemoryFileSystem()
    fs.pipe_file(f"/{tmp_path.name}/lake", b"something")
    target = RemoteTarget(f"memory://{tmp_path.name}/lake")
    with pytest.raises(ExportError, match="is an object; give a prefix for the export"), target.lock("lock"):
        pytest.fail("locked")


def test_a_worker_that_died_ends_the_export_with_advice(monkeypatch):
    """Two tasks run in this process, the third in the one that dies."""
    meet = Barrier(2)

    def run_task(_task, is_over=None):
        meet.wait(60)
        is_over.wait(60)

    @contextmanager
    def process_pool(*_args, **_named):
        def submit(*_work):
            raise BrokenProcessPool("killed")

        yield SimpleNamespace(submit=submit)

    monkeypatch.setattr(plain, "run_task", run_task)
    monkeypatch.setattr(plain, "process_pool", process_pool)
    with pytest.raises(plain.WorkerDiedError, match=r"a worker process died.* try fewer --jobs"):
        plain.LocalRunner(3).run([1, 2, 3], pytest.fail)


class Elsewhere(LocalRunner):
    """Tasks whose files do not arrive complete in the directory of the driver."""

    def __init__(self, change):
        super().__init__(1)
        self.change = change

    def run(self, tasks, done):
        super().run(tasks, done)
        self.change(next(iter(Path(tasks[0].target).glob("_mqtool/staging-*/*/messages/*.parquet"))))


@pytest.mark.parametrize(
    ("change", "size"), [(Path.unlink, "no file"), (lambda path: os.truncate(path, 5), "5")], ids=["missing", "cut"]
)
def test_files_that_do_not_arrive_in_the_target_are_an_error_and_advance_nothing(builder, tmp_path, change, size):
    path = builder.write(tmp_path / "store")
    request = ExportRequest(tuple(resolve([str(path)])), str(tmp_path / "lake"), state=str(tmp_path / "state"))
    with pytest.raises(WorkerError, match=rf"1 of 3 files .* not here: expected \d+ bytes in .*, found {size}\. Noth"):
        export(request, Elsewhere(change))
    assert [file.name for file in (tmp_path / "lake").rglob("*") if file.is_file()] == ["lock"]
    assert not (tmp_path / "state").exists()
    assert export(request, LocalRunner(1)).committed
    assert lake.table(tmp_path / "lake").num_rows == 60


@pytest.mark.parametrize("kind", ["local", "remote"])
def test_a_file_that_is_in_neither_place_is_not_moved(kind, tmp_path):
    pytest.importorskip("fsspec")
    target = target_of(str(tmp_path) if kind == "local" else f"memory://{tmp_path}")
    target.replace("staged/a", b"1")
    target.replace("staged/x/c", b"3")
    assert target.move({"staged/a": "a", "staged/b": "b", "staged/x/c": "y/z/c"}) == ["b"]
    assert target.move({"staged/x/c": "y/z/c", "staged/b": "b", "staged/a": "a"}) == ["b"]
    assert (target.read("a"), target.read("y/z/c"), target.sizes("nowhere")) == (b"1", b"3", {})
    assert target.sizes("staged") == {}
    target.replace("staged/b/c", b"22")
    assert target.sizes("staged") == {"staged/b/c": 2}


def test_a_file_of_a_commit_that_disappears_before_it_is_published_is_an_error(builder, tmp_path, monkeypatch):
    path = builder.write(tmp_path / "store")
    request = ExportRequest(tuple(resolve([str(path)])), str(tmp_path / "lake"), state=str(tmp_path / "state"))
    monkeypatch.setattr(protocol, "publish", lambda *_: None)  # as if it had been killed
    export(request, LocalRunner(1))
    monkeypatch.undo()
    next((tmp_path / "lake").glob("_mqtool/staging-*/*/messages/*.parquet")).unlink()
    with pytest.raises(ExportError, match=r"messages/part-.*: the last commit contains this file, but it is neither"):
        export(request, LocalRunner(1))


def test_tasks_of_an_export_with_relative_paths_have_absolute_ones(builder, tmp_path, monkeypatch):
    builder.write(tmp_path / "store")
    monkeypatch.chdir(tmp_path)

    class Recorder(LocalRunner):
        def run(self, tasks, done):
            places = {task.target for task in tasks} | {task.partition.source.path for task in tasks}
            places |= {span.path.rpartition("/commitlog/")[0] for task in tasks for span in task.partition.spans}
            assert places == {str(tmp_path / "lake"), str(tmp_path / "store")}
            super().run(tasks, done)

    assert export(ExportRequest(tuple(resolve(["store"])), "lake"), Recorder(1)).committed
    assert lake.table(tmp_path / "lake").num_rows == 60
