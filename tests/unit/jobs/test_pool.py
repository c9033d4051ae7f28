"""Work shared out: in the order in which it was begun, or as it gets done."""

import sys
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from itertools import count
from threading import active_count
from time import sleep

import pytest

from mqtool.errors import UnavailableError
from mqtool.jobs import pool as pools
from mqtool.jobs.pool import ahead, as_completed, available, in_order, process_pool, thread_pool


class Slow(Executor):
    """Does what it is asked for only when it is told."""

    def __init__(self):
        self.asked = []

    def submit(self, call, /, *args):
        future = Future()
        self.asked.append((future, lambda: future.set_result(call(*args))))
        return future

    def end(self, number):
        self.asked[number][1]()


def square(number):
    return number * number


def test_no_more_are_begun_than_the_window_has_room_for():
    pool = Slow()
    pieces = in_order((pool.submit(square, number) for number in count()), 3)
    first = next(pieces)  # not done: the caller waits for it
    assert len(pool.asked) == 3
    assert not first.done()
    for number in range(3):
        pool.end(number)
    assert [next(pieces).result() for _ in range(2)] == [1, 4]
    assert len(pool.asked) == 5  # one more for each that was taken


def test_a_piece_that_is_done_is_not_kept_until_the_window_is_full():
    pool = Slow()

    def begun():
        for number in range(5):
            future = pool.submit(square, number)
            pool.end(number)
            yield future

    pieces = in_order(begun(), 4)
    assert next(pieces).result() == 0
    assert len(pool.asked) == 1


@pytest.mark.parametrize("window", [1, 2, 3, 100])
@pytest.mark.parametrize("total", [0, 1, 7])
def test_all_pieces_come_in_order(window, total):
    with ThreadPoolExecutor(3) as pool:
        pieces = in_order((pool.submit(square, number) for number in range(total)), window)
        assert [piece.result() for piece in pieces] == [number * number for number in range(total)]


@pytest.mark.parametrize("total", [0, 1, 7])
def test_each_item_comes_once_with_its_answer(total):
    with ThreadPoolExecutor(2) as pool:
        found = list(as_completed(pool, square, range(total), 2))
    assert sorted(found) == [(number, number * number) for number in range(total)]


def test_nothing_is_begun_after_the_end_was_called_but_what_was_begun_is_waited_for():
    may = [True, True, False]
    with ThreadPoolExecutor(2) as pool:
        found = list(as_completed(pool, square, range(9), 3, may_begin=lambda: may.pop(0) if may else False))
    assert sorted(found) == [(0, 0), (1, 1)]


def test_threads_are_asked_to_end_if_an_exception_leaves_their_work_unneeded():
    waiting = []

    def work():
        with thread_pool(2) as (pool, is_over):
            waiting.append(pool.submit(is_over.wait, 60))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    assert waiting[0].result() is True


def test_threads_whose_work_is_done_are_not_asked_to_end():
    with thread_pool(2) as (pool, is_over):
        assert pool.submit(square, 3).result() == 9
    assert not is_over.is_set()


def test_an_error_of_the_work_reaches_the_caller():
    with ThreadPoolExecutor(1) as pool, pytest.raises(ZeroDivisionError):
        list(as_completed(pool, lambda number: 1 // number, [1, 0], 2))


def test_a_thread_makes_items_ahead_but_no_more_than_there_is_room_for():
    made = []

    def items():
        for number in range(20):
            made.append(number)
            yield number

    taken = []
    for number in ahead(items(), 3):
        sleep(0.01)
        assert number < len(made) <= number + 5
        taken.append(number)
    assert taken == list(range(20))


def test_what_fails_in_the_thread_fails_where_items_are_taken():
    def items():
        yield 1
        raise ValueError("no more")

    found = ahead(items(), 2)
    assert next(found) == 1
    with pytest.raises(ValueError, match="no more"):
        next(found)


def test_the_thread_ends_when_nobody_wants_more_items():
    before, found = active_count(), ahead(count(), 2)
    assert [next(found), next(found)] == [0, 1]
    assert active_count() == before + 1
    found.close()
    assert active_count() == before


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere semaphores are not in /dev/shm")
def test_one_worker_is_the_default_where_processes_can_share_no_semaphore(monkeypatch, tmp_path):
    monkeypatch.setattr(pools.os, "sched_getaffinity", lambda _process: range(4))
    monkeypatch.setattr(pools, "SEMAPHORES", str(tmp_path))
    assert available() == 4
    monkeypatch.setattr(pools, "SEMAPHORES", str(tmp_path / "missing"))
    assert available() == 1


def test_an_error_says_what_worker_processes_need_and_what_to_do(monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("concurrent.futures.ProcessPoolExecutor", refuse)
    says = r"/dev/shm: Permission denied\. Make it writable, or use --jobs 1"
    with pytest.raises(UnavailableError, match=says), process_pool(2, int, copies=False):
        pass
