"""A full disk, a bad disk, writes that come out short: an error to the caller, and nothing acknowledged is lost."""

import pytest

from mqtool.engine import FlushMode, GetStatus, PutStatus
from mqtool.engine.flags import RunningFlag
from mqtool.errors import ReadOnlyStoreError, StoreError
from tests.support.engine_faults import BAD_DISK, NO_SPACE, FailingFiles


def bodies(store, topic="T"):
    store.dispatch()
    found, offset = [], 0
    while (got := store.get_message(topic, 0, offset)).status is GetStatus.FOUND:
        found += [bytes(record)[88 : 88 + int.from_bytes(record[84:88], "big")] for record in got.records]
        offset = got.next_begin_offset
    return found


@pytest.mark.parametrize(("operation", "status"), [
    ("create", PutStatus.CREATE_MAPPED_FILE_FAILED), ("reserve", PutStatus.UNKNOWN_ERROR),
])  # fmt: skip
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
def test_a_write_that_fails_leaves_the_log_where_it_was(opened, code):
    files = FailingFiles("commitlog")
    store = opened(files=files, positional_writes=True)
    store.put("T", 0, b"a")
    files.errors["write"] = code
    end = store.max_physical_offset
    assert store.put("T", 0, b"b").status is PutStatus.UNKNOWN_ERROR
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
    with pytest.raises(StoreError, match="see to the disk"):
        store.close()
    assert (store.path / "abort").exists()
    again = opened(flush_mode=FlushMode.SYNC_FLUSH)
    assert bodies(again)[:1] == [b"a"]


@pytest.mark.parametrize("part", ["consumequeue", "index"])
def test_dispatch_that_cannot_write_goes_on_where_it_stood(opened, part):
    files = FailingFiles(part)
    store = opened(files=files)
    store.put("T", 0, b"a", b"KEYS\x01k\x02")
    files.errors |= {"create": NO_SPACE, "reserve": NO_SPACE}
    with pytest.raises(StoreError, match="No space left"):
        store.dispatch()
    files.errors.clear()
    store._parts.flags.clear(RunningFlag.INDEX_FILE_ERROR)
    assert bodies(store) == [b"a"]
    assert store.query_message("T", "k").physical_offsets == [0]


def test_an_index_that_cannot_be_written_ends_all_puts(opened):
    files = FailingFiles("index")
    store = opened(files=files)
    store.put("T", 0, b"a")
    files.errors["create"] = NO_SPACE
    with pytest.raises(StoreError):
        store.dispatch()
    assert store.put("T", 0, b"b").status is PutStatus.SERVICE_NOT_AVAILABLE
    files.errors.clear()
    store._parts.flags.clear(RunningFlag.INDEX_FILE_ERROR)


def test_a_read_only_place_is_refused_by_name(in_memory, clock):
    from mqtool.engine import open_store
    from tests.support.engine import small_options

    class ReadOnly(FailingFiles):
        def make_directory(self, path):
            raise PermissionError(13, "Permission denied", str(path))

    with pytest.raises(ReadOnlyStoreError, match="cannot be written: Permission denied"):
        open_store(in_memory / "store", small_options(), clock=clock, files=ReadOnly(), background=False)
    assert not (in_memory / "store").exists()
