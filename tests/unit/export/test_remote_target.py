"""Two exports into one prefix of an object store, where nothing can be locked: one of them commits."""

import errno
import itertools
from collections import Counter

import pyarrow.parquet as pq
import pytest

from mqtool.errors import StoreLockedError
from mqtool.export import commit as protocol
from mqtool.export.plain import export
from mqtool.export.run import ExportRequest
from mqtool.export.schema import ReadRequest
from mqtool.export.sources import resolve
from mqtool.export.target import RemoteTarget
from mqtool.export.task import run_task
from tests.support import lake
from tests.support.stores import copy_store

MEMORY = pytest.importorskip("fsspec.implementations.memory").MemoryFileSystem
NUMBERS = itertools.count()
NAME = "rollover-5.5.0"
ENDS = lake.record_ends(NAME)


class Runner:
    """Runs the tasks in this thread, after something else."""

    def __init__(self, before=None, after=None) -> None:
        self.before, self.after = before, after

    def run(self, tasks, done) -> None:
        if self.before is not None:
            self.before()
        for task in tasks:
            done(run_task(task))
        if self.after is not None:
            self.after()


class Shared:
    """A store, and an export of it into a prefix of an object store."""

    def __init__(self, tmp_path) -> None:
        self.store = copy_store(NAME, tmp_path)
        self.prefix = f"bucket-{next(NUMBERS)}"
        self.target = RemoteTarget(f"memory://{self.prefix}/lake")
        self.request = ExportRequest(
            tuple(resolve([f"b={self.store}"])),
            self.target.url,
            read=ReadRequest(every_class=True),
            state=f"memory://{self.prefix}/state",
        )

    def grow(self, records: int) -> None:
        lake.grow(NAME, self.store, ENDS[records - 1])

    def export(self, **hooks) -> bool:
        return export(self.request, Runner(**hooks)).committed

    def ends(self) -> Counter:
        """Ends of the records that a reader would find."""
        fs = MEMORY()
        tables = [pq.read_table(fs.open(path)) for path in fs.find(f"/{self.prefix}/lake/messages")]
        rows = [row for table in tables for row in table.select(["physical_offset", "store_size"]).to_pylist()]
        return Counter(row["physical_offset"] + row["store_size"] for row in rows)

    def staged(self) -> list[str]:
        return [name for name in self.target.names("_mqtool") if name.startswith("staging")]


@pytest.fixture
def shared(tmp_path) -> Shared:
    return Shared(tmp_path)


def test_of_two_exports_at_once_the_second_commit_is_refused(shared):
    def another() -> None:
        shared.grow(30)
        assert shared.export()

    shared.grow(10)
    with pytest.raises(StoreLockedError, match=r"lake: another export .*run this one again"):
        shared.export(before=another)
    assert shared.ends() == Counter(ENDS[:30])
    assert shared.staged() == []
    shared.grow(40)
    assert shared.export()
    assert shared.ends() == Counter(ENDS[:40])


def test_an_export_that_begins_leaves_the_files_of_one_that_runs(shared):
    shared.grow(10)
    assert shared.export(after=lambda: protocol.recover(shared.target))
    assert shared.ends() == Counter(ENDS[:10])


def test_what_an_export_that_died_left_is_removed_by_the_next_commit(shared):
    shared.grow(10)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RemoteTarget, "remove", lambda *_: None)

        def dies() -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            shared.export(after=dies)
    assert len(shared.staged()) == 1
    assert shared.export()
    assert shared.staged() == []


@pytest.mark.parametrize("dies", [False, True])
def test_of_two_exports_at_once_the_one_that_commits_may_take_over_tasks_of_the_other(shared, monkeypatch, dies):
    """Also if it ends between commit and publication; the loser must not remove what is not published yet."""
    published = protocol.publish

    def another() -> None:
        if dies:
            monkeypatch.setattr(protocol, "publish", lambda *_: None)
        result = export(shared.request, Runner())
        assert result.taken_over == result.tasks > 0
        monkeypatch.setattr(protocol, "publish", published)

    with pytest.raises(StoreLockedError, match="another export has committed here"):
        shared.export(after=another)
    assert not shared.export()
    assert shared.ends() == Counter(ENDS)
    assert shared.staged() == []


@pytest.mark.parametrize("kind", ["no mode", "not implemented", "a repeated request"])
def test_a_manifest_is_new_or_not_with_every_driver(shared, monkeypatch, kind):
    known = MEMORY.pipe_file

    def without_mode(self, path, value) -> None:
        known(self, path, value)

    def not_implemented(self, path, value, mode="overwrite") -> None:
        if mode == "create":
            raise OSError(errno.ENOSYS, "A header you provided implies functionality that is not implemented")
        known(self, path, value)

    def repeated(self, path, value, mode="overwrite") -> None:
        if mode == "create":
            known(self, path, value, mode=mode)
        known(self, path, value, mode=mode)

    drivers = {"no mode": without_mode, "not implemented": not_implemented, "a repeated request": repeated}
    monkeypatch.setattr(MEMORY, "pipe_file", drivers[kind])
    assert shared.target.write_new("_mqtool/commit-00000001.json", b"one")
    assert not shared.target.write_new("_mqtool/commit-00000001.json", b"two")
    assert shared.target.read("_mqtool/commit-00000001.json") == b"one"
