"""Lines made beside this process are those that one process makes, whatever befalls the others."""

from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import pytest
from msgspec import structs

import mqtool
from mqtool.jobs.pool import thread_pool
from mqtool.records.damage import Damage
from mqtool.store.log import json_lines as module
from mqtool.store.log.json_lines import LineMaker, Lines, json_lines, spread
from tests.support.builder import StoreBuilder
from tests.support.native import needs_native

COUNT = 600


class AtOnce(Executor):
    """Runs what it is given in this thread, or fails, and remembers."""

    def __init__(self, error=None, answer=None):
        self.error = error
        self.answer = answer
        self.asked = []

    def submit(self, call, /, *args, **options):
        self.asked.append(call.__name__)
        future = Future()
        if self.error and args:
            future.set_exception(self.error)
        else:
            future.set_result(call(*args, **options) if self.answer is None or not args else self.answer())
        return future


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    builder = StoreBuilder(segment_size=1 << 14)
    for number in range(COUNT):
        builder.put(f"message {number}".encode(), topic=f"T{number % 3}", tags="ab"[number % 2])
    root = builder.write(tmp_path_factory.mktemp("lines") / "store")
    segment = sorted((root / "commitlog").iterdir())[1]
    data = bytearray(segment.read_bytes())
    data[2000:2100] = bytes(100)
    segment.write_bytes(data)
    return root


def plain(items):
    """Damage as it is and the lines between as text, cut anywhere."""
    found = []
    for item in items:
        if isinstance(item, Damage):
            found.append(item)
        elif found and isinstance(found[-1], str):
            found[-1] += bytes(item.data).decode()
        else:
            found.append(bytes(item.data).decode())
    return found


def spread_over(root, pool, **wanted):
    with mqtool.open(root) as store:
        items = module._items(store, module.Selection.of(**wanted))
        return plain(spread(store.commit_log, items, LineMaker("text", raw=False), pool, 2))


def alone(root, **wanted):
    with mqtool.open(root) as store:
        return plain(json_lines(store, **wanted))


@pytest.mark.parametrize(
    "wanted",
    [{}, {"topics": ["T1"]}, {"tags": ["a"], "limit": 100}, {"start": 3000, "end": 40_000}],
    ids=["all", "a topic", "a tag, limited", "a range"],
)
def test_blocks_made_elsewhere_are_the_same_lines_in_the_same_order(root, wanted):
    with ThreadPoolExecutor(2) as pool:
        assert spread_over(root, pool, **wanted) == alone(root, **wanted)


def test_a_worker_is_given_blocks_to_make(root):
    pool = AtOnce()
    assert spread_over(root, pool) == alone(root)
    assert pool.asked.count("_make") > 3


def test_what_a_killed_worker_was_asked_for_is_made_here(root):
    assert spread_over(root, AtOnce(BrokenProcessPool("killed"))) == alone(root)


def test_what_a_worker_does_not_find_in_the_file_any_more_is_made_here(root):
    assert spread_over(root, AtOnce(answer=lambda: None)) == alone(root)


def test_another_process_gives_the_same(root):
    with mqtool.open(root) as store:
        assert plain(json_lines(store, jobs=2)) == alone(root)


@needs_native
def test_threads_make_the_same_lines_where_rules_are_compiled(root, monkeypatch):
    expected, hexadecimal, counts = alone(root), alone(root, body_mode="hex"), []
    monkeypatch.setattr(module, "thread_pool", lambda count: counts.append(count) or thread_pool(count))
    with mqtool.open(root) as store:
        assert plain(json_lines(store, jobs=3)) == expected
        assert counts == [2]
        assert plain(json_lines(store, "hex", jobs=3)) == hexadecimal
        assert counts == [2, 2]


def test_reading_may_stop_in_the_middle(root):
    with mqtool.open(root) as store:
        lines = json_lines(store, jobs=2)
        assert isinstance(next(lines), Lines)
        lines.close()
        assert next(lines, None) is None


class Broken(AtOnce):
    """Its workers have been killed before they are given anything."""

    def submit(self, call, /, *args, **options):
        if args:
            raise BrokenProcessPool("killed")
        return super().submit(call, *args, **options)


def test_a_pool_that_takes_nothing_any_more_leaves_all_lines_to_this_process(root):
    assert spread_over(root, Broken()) == alone(root)


@pytest.mark.parametrize("harm", ["deleted", "cut"])
def test_a_worker_that_cannot_read_its_bytes_leaves_them_to_this_process(harm, root, monkeypatch):
    """The file has changed since this process read it."""
    expected, real = alone(root), module._block

    def gone(log, frames):
        block = real(log, frames)
        path = block.path.with_name("absent") if harm == "deleted" else block.path
        return structs.replace(block, path=path, size=block.size if harm == "deleted" else 1 << 20)

    monkeypatch.setattr(module, "_block", gone)
    pool = AtOnce()
    assert spread_over(root, pool) == expected
    assert pool.asked.count("_make") > 3


def test_lines_of_a_log_in_object_storage_are_made_by_this_process(root):
    memory = pytest.importorskip("fsspec.implementations.memory").MemoryFileSystem()
    for path in root.rglob("*"):
        if path.is_file():
            memory.pipe_file(f"/lines/{path.relative_to(root)}", path.read_bytes())
    pool = AtOnce()
    local, remote = alone(root), spread_over("memory://lines", pool)
    assert [item for item in remote if isinstance(item, str)] == [item for item in local if isinstance(item, str)]
    assert pool.asked == ["_ready"]
