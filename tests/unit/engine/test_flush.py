"""When bytes reach the disk, what the checkpoint says then, and when a waiting put returns."""

import threading
import time

import pytest

from mqtool.engine import Compat, FlushMode, PutStatus, flusher, open_store
from mqtool.engine.disk.files import File, Files
from mqtool.engine.flusher import GroupCommit
from mqtool.errors import StoreError
from mqtool.formats import checkpoint
from tests.support.engine import small_options
from tests.support.engine_faults import BAD_DISK, FailingFiles


class CountingFiles(Files):
    """Counts syncs by the first part of the path below the store."""

    def __init__(self):
        self.syncs = []

    def open(self, path, size):
        counted = File(path, size)
        plain = counted.sync

        def sync():
            self.syncs.append(path.parts[path.parts.index("store") + 1])
            plain()

        counted.sync = sync
        return counted


def test_an_asynchronous_flush_waits_for_pages_and_at_last_for_none(opened, clock):
    files = CountingFiles()
    store = opened(files=files, commit_log_file_size=1 << 20)
    turn, flushed = store._components.flusher.log_turn, lambda: store.flushed_offset
    store.put("T", 0, b"x" * 4000)
    turn()
    assert flushed() == 0
    for _ in range(4):
        store.put("T", 0, b"x" * 4000)
    turn()
    assert flushed() == store.max_physical_offset
    store.put("T", 0, b"one page")
    clock.time += 9_999
    turn()
    assert flushed() < store.max_physical_offset
    clock.time += 1
    turn()
    assert flushed() == store.max_physical_offset


def test_the_checkpoint_learns_of_the_log_by_thorough_flushes_only(opened, clock):
    store = opened(commit_log_file_size=1 << 20)
    for _ in range(8):
        store.put("T", 0, b"x" * 4000)
    store._components.flusher.log_turn()
    assert store._components.checkpoint.values.physic_msg_timestamp == 0
    clock.time += 10_000
    stored = store.put("T", 0, b"last").store_timestamp
    store._components.flusher.log_turn()
    assert store._components.checkpoint.values.physic_msg_timestamp == stored


def test_the_checkpoint_learns_of_queues_when_log_and_queues_are_on_disk(opened, clock):
    files = CountingFiles()
    store = opened(files=files)
    stored = store.put("T", 0, b"x").store_timestamp
    store.dispatch()
    store._components.flusher.queue_turn()
    assert store._components.checkpoint.values.logics_msg_timestamp == 0
    clock.time += 60_000
    files.syncs.clear()
    store._components.flusher.queue_turn()
    assert files.syncs == ["commitlog", "consumequeue", "checkpoint"]
    found = checkpoint.parse((store.path / "checkpoint").read_bytes())
    assert (found.logics_msg_timestamp, found.logics_physical_offset) == (stored, store.max_physical_offset)


def test_a_4_9_checkpoint_has_three_fields(opened):
    store = opened(compat=Compat.V4_9)
    store.put("T", 0, b"x")
    store.close()
    data = (store.path / "checkpoint").read_bytes()
    assert len(data) == 4096
    assert not any(data[24:])
    assert any(data[:24])


def test_a_synchronous_put_returns_when_its_record_is_on_disk(opened):
    store = opened(flush_mode=FlushMode.SYNC_FLUSH)
    result = store.put("T", 0, b"x")
    assert store.flushed_offset == result.end
    assert store.put_batch("T", 0, b"").status is PutStatus.MESSAGE_ILLEGAL


@pytest.mark.parametrize(
    ("held", "waits"),
    [
        (b"", True),
        (b"WAIT\x01true\x02", True),
        (b"WAIT\x01false\x02", False),
        (b"WAIT\x01yes\x02", False),
        (b"DONT_WAIT\x01false\x02", True),
        (b"WAIT\x01false\x02WAIT\x01TRUE\x02", True),
    ],
)
def test_a_message_may_say_that_it_does_not_wait(opened, held, waits):
    store = opened(flush_mode=FlushMode.SYNC_FLUSH)
    result = store.put("T", 0, b"x", held)
    assert (store.flushed_offset == result.end) == waits
    store.dispatch()
    assert store.queue_bounds("T", 0)[1] == waits  # dispatch goes no further than the flush
    store.flush()


def test_a_pool_shows_nothing_before_it_commits(opened):
    store = opened(pool_buffers=1)
    store.put("T", 0, b"x")
    store.dispatch()
    assert (store.max_physical_offset, store.queue_bounds("T", 0)) == (0, (0, 0))
    store._components.flusher.commit_turn()
    assert store.max_physical_offset == 0  # less than four pages wait, and the interval is not over
    store._components.clock.time += 200
    store._components.flusher.commit_turn()
    store.dispatch()
    assert store.queue_bounds("T", 0) == (0, 1)
    assert store.flushed_offset == 0


def test_a_pool_that_is_exhausted_goes_on_without_buffers(opened):
    store = opened(pool_buffers=2)
    for number in range(40):
        assert store.put("T", 0, bytes([number]) * 900).ok
    assert store._components.log.pool.free == 0
    store.flush()
    assert store._components.log.pool.free > 0
    store.dispatch()
    assert store.queue_bounds("T", 0) == (0, 40)


# -- group commit


def test_puts_that_wait_together_share_a_flush():
    started, go_on, flushes = threading.Event(), threading.Event(), []

    def flush():
        flushes.append(len(flushes))
        if len(flushes) == 1:
            started.set()
            assert go_on.wait(5)
        return 1000

    group, answers = GroupCommit(flush, 5_000), []
    workers = [threading.Thread(target=lambda end=end: answers.append(group.wait(end))) for end in range(1, 9)]
    workers[0].start()
    assert started.wait(5)
    for worker in workers[1:]:
        worker.start()
    while len(group._waiting) < 7:
        threading.Event().wait(0.001)
    go_on.set()
    for worker in workers:
        worker.join(5)
    assert answers == [PutStatus.PUT_OK] * 8
    assert len(flushes) == 2


def test_a_put_that_waits_too_long_times_out_and_the_next_one_leads():
    release, started = threading.Event(), threading.Event()

    def flush():
        started.set()
        assert release.wait(5)
        return 10

    group = GroupCommit(flush, 5_000)
    leader = threading.Thread(target=group.wait, args=(5,))
    leader.start()
    assert started.wait(5)
    group._timeout = 0.01
    assert group.wait(6) is PutStatus.FLUSH_DISK_TIMEOUT
    release.set()
    leader.join(5)
    group._timeout = 5
    assert group.wait(7) is PutStatus.PUT_OK


def test_a_flush_that_fails_fails_those_who_waited_for_it_and_nobody_else():
    outcomes = [OSError("bad disk"), 10]

    def flush():
        outcome = outcomes.pop(0)
        if isinstance(outcome, OSError):
            raise outcome
        return outcome

    group = GroupCommit(flush, 1_000)
    assert group.wait(5) is PutStatus.FLUSH_DISK_TIMEOUT
    assert group.wait(5) is PutStatus.PUT_OK
    outcomes.append(3)
    assert group.wait(5) is PutStatus.FLUSH_DISK_TIMEOUT  # flushed, but not so far


def test_a_put_that_gave_up_during_a_flush_keeps_nobody_behind_it_waiting():
    started, go_on, second, flushes = threading.Semaphore(0), threading.Semaphore(0), threading.Event(), []

    def flush():
        flushes.append(len(flushes))
        if len(flushes) == 2:
            second.set()
        started.release()
        assert go_on.acquire(timeout=5)
        return 1000

    class Group(GroupCommit):
        @property
        def _timeout(self):
            if threading.current_thread().name != "impatient":
                return 5
            assert second.wait(5)
            return 0.01

        @_timeout.setter
        def _timeout(self, seconds):
            pass

    group, answers = Group(flush, 5_000), {}
    workers = [threading.Thread(target=lambda end=end: answers.update({end: group.wait(end)})) for end in range(1, 6)]
    workers[3].name = "impatient"  # gives up while the second flush, which is to serve it, is under way
    workers[0].start()
    assert started.acquire(timeout=5)
    for number, worker in enumerate(workers[1:], 1):
        worker.start()
        while len(group._waiting) < number:
            threading.Event().wait(0.001)
    go_on.release()
    assert started.acquire(timeout=5)
    workers[3].join(5)
    go_on.release()
    for worker in workers:
        worker.join(5)
    assert answers == {end: PutStatus.FLUSH_DISK_TIMEOUT if end == 4 else PutStatus.PUT_OK for end in range(1, 6)}
    assert len(flushes) == 2


def test_what_a_pool_commits_is_dispatched_without_another_put(in_memory):
    options = small_options(pool_buffers=2, commit_interval_ms=20, commit_thorough_interval_ms=0)
    with open_store(in_memory / "store", options) as store:
        for offset in range(5):
            assert store.put("T", 0, b"x").queue_offset == offset
            assert store.wait_for("T", 0, offset, timeout=5)


@pytest.mark.parametrize("waits_not", [{"properties": b"WAIT\x01false\x02"}, {"wait": False}])
def test_with_sync_flush_consumers_get_a_message_for_which_no_put_waits(opened, waits_not):
    store = opened(flush_mode=FlushMode.SYNC_FLUSH, background=True)
    assert store.put("T", 0, b"x").ok
    assert store.wait_for("T", 0, 0, timeout=5)
    end = store.put("T", 0, b"x", **waits_not).end
    assert store.wait_for("T", 0, 1, timeout=5)
    assert store.flushed_offset >= end


def test_a_steady_stream_of_puts_does_not_delay_the_flush_of_what_no_put_waits_for(opened, monkeypatch):
    store = opened(flush_mode=FlushMode.SYNC_FLUSH)
    loop, now = store._components.loop, [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    class Stream(threading.Event):
        def wait(self, timeout=None):
            now[0] += 0.003
            loop._stopping = now[0] > 1 or store.flushed_offset > 0
            return store.put("T", 0, b"x", wait=False).ok

    loop._wake = Stream()
    loop._run()
    assert 0.010 <= now[0] < 0.020


def test_the_rest_is_not_flushed_while_a_put_flushes_and_an_error_leaves_it_for_later(opened, clock):
    files = FailingFiles("commitlog")
    store = opened(flush_mode=FlushMode.SYNC_FLUSH, files=files, declared=("abort-present", "queue-missing"))
    parts = store._components
    flushed = store.put("T", 0, b"x").end
    end = store.put("T", 0, b"x", wait=False).end
    parts.flusher.group._leading = True
    parts.loop._flush_rest()
    assert store.flushed_offset == flushed
    parts.flusher.group._leading = False
    parts.loop._flush_rest()
    assert (store.flushed_offset, clock.slept) == (end, [])
    store.put("T", 0, b"x", wait=False)
    files.errors["sync"] = BAD_DISK
    parts.loop._flush_rest()
    assert (store.flushed_offset, clock.slept) == (end, [1])
    with pytest.raises(StoreError):
        store.close()


def test_a_log_that_cannot_be_flushed_for_a_full_index_file_is_reported_in_one_line(opened, caplog):
    """In the thread that flushes the file, where nobody catches an error."""
    store = opened()
    store.put("T", 0, b"x", b"KEYS\x01k\x02")
    store.dispatch()
    index = store._components.index

    def fails(_end_timestamp):
        raise OSError("no space")

    index.when_full = fails
    index._flush_in_background(index.files[0])
    assert [one.getMessage() for one in caplog.records] == [
        f"log not flushed for index file path={index.files[0].file.path} error=no space"
    ]


class _AnsweredLate:
    """A lock whose wait ends by the clock, just after something else has happened."""

    def __init__(self, happens):
        self._happens = happens

    def acquire(self, timeout=None):
        if timeout is None:
            return True
        self._happens()
        return False

    def release(self):
        pass


@pytest.mark.parametrize(("flushed", "status"), [(10, PutStatus.PUT_OK), (5, PutStatus.FLUSH_DISK_TIMEOUT)])
def test_a_put_whose_time_is_over_just_as_it_is_answered_takes_the_answer(monkeypatch, flushed, status):
    group = GroupCommit(lambda: 100, 1_000)
    group._leading = True

    class Waiter(flusher._Waiter):
        __slots__ = ()

        def __init__(self, end):
            super().__init__(end)
            self.done = _AnsweredLate(lambda: group._complete([self], flushed))

    monkeypatch.setattr(flusher, "_Waiter", Waiter)
    assert group.wait(10) is status


def test_a_put_whose_time_is_over_just_as_it_gets_the_lead_leads(monkeypatch):
    flushes = []
    group = GroupCommit(lambda: flushes.append(1) or 100, 1_000)
    group._leading = True

    class Waiter(flusher._Waiter):
        __slots__ = ()

        def __init__(self, end):
            super().__init__(end)
            self.done = _AnsweredLate(group._hand_over)

    monkeypatch.setattr(flusher, "_Waiter", Waiter)
    assert group.wait(10) is PutStatus.PUT_OK
    assert (flushes, group.is_flushing) == ([1], False)


def test_a_flush_during_which_all_others_give_up_answers_the_put_that_leads_it():
    waiter = flusher._Waiter(10)

    def flush():
        waiter.status = PutStatus.FLUSH_DISK_TIMEOUT
        return 100

    group = GroupCommit(flush, 1_000)
    assert group._lead(20, [waiter]) is PutStatus.PUT_OK
    assert (waiter.status, waiter.done.locked()) == (PutStatus.FLUSH_DISK_TIMEOUT, True)
