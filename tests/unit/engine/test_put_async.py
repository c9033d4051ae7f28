"""Coroutines that put: in order, on disk before they go on, and none forgotten when a flush fails or is slow."""

import asyncio
import errno
import threading

import pytest

from mqtool.engine import FlushMode, PutStatus, open_store
from mqtool.engine.flusher import AsyncCommit
from mqtool.errors import StoreError
from tests.support.engine import small_options
from tests.support.engine_faults import FailingFiles

SYNC = {"flush_mode": FlushMode.SYNC_FLUSH}


async def put_all(store, count: int) -> list:
    return await asyncio.gather(*(store.put_async("T", 0, b"%d" % number) for number in range(count)))


@pytest.mark.parametrize("options", [SYNC, {}], ids=["sync", "async"])
def test_messages_keep_the_order_of_their_tasks(opened, options):
    store = opened(**options)
    results = asyncio.run(put_all(store, 50))
    assert [result.status for result in results] == [PutStatus.PUT_OK] * 50
    assert [result.queue_offset for result in results] == list(range(50))
    store.dispatch()
    assert [bytes(store.message_at(result.physical_offset))[88:90].strip(b"\x01\0") for result in results][:3] == [
        b"0",
        b"1",
        b"2",
    ]


def test_a_message_is_on_disk_when_its_wait_is_over(opened):
    store = opened(**SYNC)

    async def put_some() -> None:
        for _ in range(5):
            result = await store.put_async("T", 0, b"x")
            assert store.flushed_offset >= result.end

    asyncio.run(put_some())


def test_many_share_a_flush(opened, monkeypatch):
    store = opened(**SYNC)
    flushes, all_wait, group = [], threading.Event(), store._components.flusher.group
    plain = group._flush
    monkeypatch.setattr(group, "_flush", lambda: flushes.append(1) or (all_wait.wait() and plain()))

    async def put_while_one_flushes() -> None:
        waiting = asyncio.create_task(put_all(store, 200))
        await asyncio.sleep(0.02)
        all_wait.set()
        assert {result.status for result in await waiting} == {PutStatus.PUT_OK}

    asyncio.run(put_while_one_flushes())
    assert len(flushes) <= 2


def test_a_message_that_need_not_wait_does_not(opened, monkeypatch):
    store = opened(**SYNC)
    monkeypatch.setattr(store._components.flusher.group, "_flush", lambda: pytest.fail("flushed"))
    assert asyncio.run(store.put_async("T", 0, b"x", b"WAIT\x01false\x02")).status is PutStatus.PUT_OK


def test_a_refused_message_is_answered_at_once(opened):
    store = opened(**SYNC)
    result = asyncio.run(store.put_async("T", 0, b"x", b"k\x01" + b"v" * 40_000))
    assert (result.ok, result.status) == (False, PutStatus.PROPERTIES_SIZE_EXCEEDED)


def test_a_failed_flush_reaches_everybody(tmp_path):
    files = FailingFiles("commitlog")
    store = open_store(tmp_path / "store", small_options(**SYNC), files=files, background=False)
    assert asyncio.run(store.put_async("T", 0, b"before")).status is PutStatus.PUT_OK
    files.errors["sync"] = errno.EIO
    results = asyncio.run(put_all(store, 20))
    assert {result.status for result in results} == {PutStatus.FLUSH_DISK_TIMEOUT}
    assert asyncio.run(store.put_async("T", 0, b"after")).status is PutStatus.SERVICE_NOT_AVAILABLE
    with pytest.raises(StoreError, match="an earlier flush has failed"):
        store.close()


def test_another_error_reaches_everybody_too():
    def fail(_end: int) -> PutStatus:
        raise ValueError("a fault")

    commit = AsyncCommit(fail, lambda: 50)

    async def wait_for_all() -> list:
        return await asyncio.gather(*(commit.flushed(end) for end in (10, 50, 60, 70)), return_exceptions=True)

    found = asyncio.run(wait_for_all())
    assert found[:2] == [PutStatus.PUT_OK] * 2
    assert [str(error) for error in found[2:]] == ["a fault"] * 2
    commit.stop()


def test_a_cancelled_wait_leaves_the_others_and_the_message(opened, monkeypatch):
    store = opened(**SYNC)
    may_flush, group = threading.Event(), store._components.flusher.group
    plain = group._flush
    monkeypatch.setattr(group, "_flush", lambda: may_flush.wait() and plain())

    async def cancel_one() -> None:
        tasks = [asyncio.create_task(store.put_async("T", 0, b"x")) for _ in range(3)]
        await asyncio.sleep(0.01)
        assert not any(task.done() for task in tasks)
        tasks[1].cancel()
        may_flush.set()
        first, cancelled, last = await asyncio.gather(*tasks, return_exceptions=True)
        assert (first.status, last.status, last.queue_offset) == (PutStatus.PUT_OK, PutStatus.PUT_OK, 2)
        assert isinstance(cancelled, asyncio.CancelledError)

    asyncio.run(cancel_one())
    assert store.dispatch() == 3


def test_loops_of_several_threads_wait_at_once(opened):
    store = opened(**SYNC)
    found: list[list] = []
    threads = [threading.Thread(target=lambda: found.append(asyncio.run(put_all(store, 30)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    offsets = sorted(result.queue_offset for results in found for result in results)
    assert offsets == list(range(120))


def test_closing_the_store_answers_those_that_wait(tmp_path):
    store = open_store(tmp_path / "store", small_options(**SYNC), background=False)

    async def close_meanwhile() -> list:
        waiting = asyncio.gather(*(store.put_async("T", 0, b"x") for _ in range(5)))
        await asyncio.sleep(0)
        await asyncio.to_thread(store.close)
        return [*await waiting, await store.put_async("T", 0, b"late")]

    *before, late = asyncio.run(close_meanwhile())
    assert {result.status for result in before} == {PutStatus.PUT_OK}
    assert late.status is PutStatus.SERVICE_NOT_AVAILABLE


def test_a_batch_is_waited_for(opened):
    store = opened(**SYNC)

    async def put_batch() -> None:
        result = store.put_batch("T", 0, [(b"x", b"", 0)] * 3, wait=False)
        assert await store.wait_flushed_async(result.end) is PutStatus.PUT_OK
        assert store.flushed_offset >= result.end

    asyncio.run(put_batch())


def test_a_put_after_the_end_of_the_flushing_thread_is_flushed_all_the_same():
    waited = []
    commit = AsyncCommit(lambda end: waited.append(end) or PutStatus.PUT_OK, lambda: 0)
    commit.stop()  # no put has waited: there is no thread

    async def put_late() -> PutStatus:
        return await commit.flushed(7)

    assert asyncio.run(put_late()) is PutStatus.PUT_OK
    assert (waited, commit._thread) == ([7], None)


def test_two_threads_that_put_first_start_one_flushing_thread():
    commit = AsyncCommit(lambda _end: PutStatus.PUT_OK, lambda: 0)
    commit._start()
    thread = commit._thread
    commit._start()  # of the other, which has found no thread either
    assert commit._thread is thread
    commit.stop()
    assert not thread.is_alive()


def test_two_threads_that_wait_first_share_what_flushes(opened, monkeypatch):
    store = opened(**SYNC)
    other = AsyncCommit(store.wait_flushed, lambda: store.flushed_offset)

    class Late:
        """The append lock; when one gets it another has been faster."""

        def __enter__(self):
            store._async_commit = other

        def __exit__(self, *_error):
            pass

    async def wait() -> PutStatus:
        return await store.wait_flushed_async(end)

    end = store.put("T", 0, b"x", wait=False).end
    with monkeypatch.context() as patched:
        patched.setattr(store._log, "lock", Late())
        assert asyncio.run(wait()) is PutStatus.PUT_OK
    assert store._async_commit is other
    assert store.flushed_offset == end
