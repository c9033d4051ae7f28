"""A full disk, a bad disk, writes that come out short: an error to the caller, and nothing acknowledged is lost."""

import time

import numpy as np
import pytest

from mqtool.engine import FlushMode, GetStatus, PutStatus, index, open_store
from mqtool.engine.statuses import RunningFlag
from mqtool.engine.write.columns import MessageColumns
from mqtool.errors import ReadOnlyStoreError, StoreError
from mqtool.formats import index_file as layout
from tests.support.engine import small_options, tree
from tests.support.engine_faults import BAD_DISK, NO_SPACE, FailingFiles
from tests.support.native import IS_COMPILED, form


def bodies(store, topic="T"):
    store.dispatch()
    found, offset = [], 0
    while (got := store.get_message(topic, 0, offset)).status is GetStatus.FOUND:
        found += [bytes(record)[88 : 88 + int.from_bytes(record[84:88], "big")] for record in got.records]
        offset = got.next_begin_offset
    return found


def eventually(holds):
    """Waits for what a thread of the store makes true."""
    deadline = time.monotonic() + 10
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.005)
    return holds()


@pytest.mark.parametrize(
    ("operation", "status"),
    [
        ("create", PutStatus.CREATE_MAPPED_FILE_FAILED),
        ("reserve", PutStatus.UNKNOWN_ERROR),
    ],
)
def test_a_full_disk_is_an_answer_and_later_puts_work_again(opened, operation, status):
    files = FailingFiles("commitlog")
    store = opened(files=files)
    assert store.put("T", 0, b"a" * 3000).ok
    files.errors[operation] = NO_SPACE
    assert store.put("T", 0, b"b" * 3000).status is status
    assert store.put("T", 0, b"b" * 3000).queue_offset == 0
    files.errors.clear()
    result = store.put("T", 0, b"c" * 3000)
    assert (result.ok, result.queue_offset) == (True, 1)
    assert bodies(store) == [b"a" * 3000, b"c" * 3000]


@pytest.mark.parametrize("code", [NO_SPACE, BAD_DISK])
def test_a_write_that_fails_leaves_the_log_where_it_was_and_is_reported_once(opened, code, caplog):
    files = FailingFiles("commitlog")
    store = opened(files=files, positional_writes=True)
    store.put("T", 0, b"a")
    files.errors["write"] = code
    end = store.max_physical_offset
    assert store.put("T", 0, b"b").status is PutStatus.UNKNOWN_ERROR
    assert store.put("T", 0, b"b").status is PutStatus.UNKNOWN_ERROR
    assert caplog.text.count("append failed") == 1
    assert store.max_physical_offset == end
    files.errors.clear()
    assert store.put("T", 0, b"c").physical_offset == end
    assert bodies(store) == [b"a", b"c"]


def test_short_writes_are_finished(opened):
    files = FailingFiles()
    files.short_writes = True
    store = opened(files=files, positional_writes=True)
    sent = [bytes([n]) * 100 * n for n in range(20)]
    assert all(store.put("T", 0, body).ok for body in sent)
    assert bodies(store) == sent


def test_a_failed_flush_is_no_acknowledgement_and_ends_all_puts(opened):
    files = FailingFiles("commitlog")
    store = opened(files=files, flush_mode=FlushMode.SYNC_FLUSH)
    assert store.put("T", 0, b"a").status is PutStatus.PUT_OK
    files.errors["sync"] = BAD_DISK
    assert store.put("T", 0, b"b").status is PutStatus.FLUSH_DISK_TIMEOUT
    files.errors.clear()  # the kernel may have forgotten the page: that it works again proves nothing
    assert store.put("T", 0, b"c").status is PutStatus.SERVICE_NOT_AVAILABLE
    with pytest.raises(StoreError, match="check the disk"):
        store.close()
    assert (store.path / "abort").exists()
    again = opened(flush_mode=FlushMode.SYNC_FLUSH)
    assert bodies(again)[:1] == [b"a"]


@pytest.mark.parametrize(
    ("part", "operation"),
    [
        ("consumequeue", "create"),
        ("consumequeue", "write"),
        ("index", "create"),
        ("index", "reserve"),
    ],
)
def test_dispatch_without_space_ends_no_puts_and_goes_on_where_it_stood(opened, part, operation):
    files = FailingFiles(part)
    store = opened(files=files)
    store.put("T", 0, b"a", b"KEYS\x01k\x02")
    files.errors[operation] = NO_SPACE
    for _ in range(40):
        with pytest.raises(StoreError, match="No space left"):
            store.dispatch()
    assert store.put("T", 0, b"b", b"KEYS\x01k\x02").ok
    files.errors.clear()
    assert bodies(store) == [b"a", b"b"]
    assert len(store.query_message("T", "k").physical_offsets) == 2
    assert len(list((store.path / "index").iterdir())) == 1


def test_many_keys_without_space_are_indexed_once_there_is_some(opened):
    files = FailingFiles("index")
    store = opened(files=files)
    sent = [store.put("T", 0, b"x", b"KEYS\x01k%d\x02" % n).physical_offset for n in range(60)]
    files.errors["reserve"] = NO_SPACE
    with pytest.raises(StoreError, match="No space left"):
        store.dispatch()
    assert store.writable
    files.errors.clear()
    store.dispatch()
    assert [store.query_message("T", f"k{n}").physical_offsets for n in range(60)] == [[offset] for offset in sent]


def test_the_thread_of_dispatch_waits_for_space_however_long(opened, monkeypatch):
    monkeypatch.setattr("mqtool.engine.service.MAX_FAILURES", 3)
    files = FailingFiles("consumequeue")
    files.errors["create"] = NO_SPACE
    store = opened(files=files, background=True)
    store.put("T", 0, b"a")
    loop, clock = store._components.loop, store._components.clock
    assert eventually(lambda: len(clock.slept) > 9)
    assert store.put("T", 0, b"b").ok
    files.errors.clear()
    assert loop.wait_until(lambda: store.queue_bounds("T", 0) == (0, 2), 10)


def test_dispatch_that_a_bad_disk_stops_ends_all_puts(opened, monkeypatch):
    monkeypatch.setattr("mqtool.engine.service.MAX_FAILURES", 3)
    files = FailingFiles("consumequeue")
    files.errors["create"] = BAD_DISK
    store = opened(files=files, background=True)
    store.put("T", 0, b"a")
    assert eventually(lambda: not store.writable)
    assert store.put("T", 0, b"b").status is PutStatus.SERVICE_NOT_AVAILABLE
    files.errors.clear()
    store._components.flags.clear(RunningFlag.LOGICS_QUEUE_ERROR)


@pytest.mark.parametrize("mode", [FlushMode.SYNC_FLUSH, FlushMode.ASYNC_FLUSH])
def test_a_buffer_of_the_pool_without_space_is_kept_until_there_is_some(opened, mode):
    files = FailingFiles("commitlog")
    store = opened(files=files, pool_buffers=2, flush_mode=mode)
    files.errors["write"] = NO_SPACE
    status = PutStatus.FLUSH_DISK_TIMEOUT if mode is FlushMode.SYNC_FLUSH else PutStatus.PUT_OK
    assert store.put("T", 0, b"a").status is status
    with pytest.raises(StoreError, match="No space left"):
        store.flush()
    assert store.writable
    files.errors.clear()
    assert store.put("T", 0, b"b").status is PutStatus.PUT_OK
    store.flush()
    assert bodies(store) == [b"a", b"b"]


def test_a_flush_without_space_ends_all_puts(opened):
    files = FailingFiles("commitlog")
    store = opened(files=files, flush_mode=FlushMode.SYNC_FLUSH)
    files.errors["sync"] = NO_SPACE  # the kernel drops pages that it had no blocks for
    assert store.put("T", 0, b"a").status is PutStatus.FLUSH_DISK_TIMEOUT
    files.errors.clear()
    assert store.put("T", 0, b"b").status is PutStatus.SERVICE_NOT_AVAILABLE
    with pytest.raises(StoreError, match="check the disk"):
        store.close()
    opened(flush_mode=FlushMode.SYNC_FLUSH)


def test_an_index_that_cannot_be_written_ends_all_puts(opened):
    files = FailingFiles("index")
    store = opened(files=files)
    store.put("T", 0, b"a")
    files.errors["create"] = BAD_DISK
    with pytest.raises(StoreError):
        store.dispatch()
    assert store.put("T", 0, b"b").status is PutStatus.SERVICE_NOT_AVAILABLE
    files.errors.clear()
    store._components.flags.clear(RunningFlag.INDEX_FILE_ERROR)


def test_a_read_only_place_is_refused_by_name(in_memory, clock):
    class ReadOnly(FailingFiles):
        def make_directory(self, path):
            raise PermissionError(13, "Permission denied", str(path))

    with pytest.raises(ReadOnlyStoreError, match="cannot be written: Permission denied"):
        open_store(in_memory / "store", small_options(), clock=clock, files=ReadOnly(), background=False)
    assert not (in_memory / "store").exists()


def test_a_disk_that_is_full_when_a_segment_ends_is_an_answer(opened):
    files = FailingFiles("commitlog")
    store = opened(files=files)
    first = store.put("T", 0, b"a" * 2000)
    file = store._log.queue.last
    file.reserved = file.wrote  # the blocks of the rest are not allocated yet
    files.errors["reserve"] = NO_SPACE
    assert store.put("T", 0, b"b" * 3000).status is PutStatus.UNKNOWN_ERROR
    assert store.max_physical_offset == first.end
    files.errors.clear()
    assert store.put("T", 0, b"c" * 3000).physical_offset == 4096
    assert bodies(store) == [b"a" * 2000, b"c" * 3000]


def test_columns_whose_write_fails_are_not_in_the_log(opened):
    if not IS_COMPILED:
        pytest.skip("needs the extension modules")
    files = FailingFiles("commitlog")
    columns = MessageColumns(["T"], np.zeros(3, int), 0, [b"a", b"b", b"c"])
    with form(compiled=True):
        store = opened(files=files)
        end = store.put_many(columns).end
        files.errors["write"] = BAD_DISK
        failed = store.put_many(columns)
        files.errors.clear()
        assert (failed.status, len(failed.physical_offsets)) == (PutStatus.UNKNOWN_ERROR, 0)
        assert store.max_physical_offset == end
        assert store.put_many(columns).queue_offsets.tolist() == [3, 4, 5]
    assert bodies(store) == [b"a", b"b", b"c"] * 2


def test_entries_beyond_the_reserved_part_of_an_index_file_wait_for_space(tmp_path, monkeypatch):
    monkeypatch.setattr(index, "STEP", 2 * layout.ENTRY_SIZE)
    files = FailingFiles()
    file = files.create(tmp_path / "20231114221320000", layout.file_size(5, 10))
    writer = index.IndexWriter(file, 5, 10, layout.header_after(None))
    assert writer.lookup(7, 0, 1 << 60, 32) == []
    assert writer.put(7, 100, 1000)
    files.errors["reserve"] = NO_SPACE
    with pytest.raises(OSError, match="No space left"):
        writer.put(7, 200, 1000)
    assert writer.lookup(7, 0, 1 << 60, 32) == [100]
    files.errors.clear()
    assert [writer.put(7, at, 1000) for at in range(200, 1000, 100)] == [True] * 8
    assert writer.lookup(7, 0, 1 << 60, 32) == list(range(900, 0, -100))
    assert not writer.put(7, 1000, 1000)


def test_an_index_file_that_cannot_be_opened_is_not_deleted(opened):
    files = FailingFiles("index")
    store = opened()
    store.put("T", 0, b"a", b"KEYS\x01k\x02")
    store.close()
    before = tree(store.path)
    files.errors["reserve"] = NO_SPACE
    with pytest.raises(StoreError, match="No space left"):
        open_store(store.path, small_options(), files=files, background=False)
    assert {name: data for name, data in tree(store.path).items() if name.startswith("index/")} == {
        name: data for name, data in before.items() if name.startswith("index/")
    }
    assert len(opened().query_message("T", "k").physical_offsets) == 1
