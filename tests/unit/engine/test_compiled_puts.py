"""The compiled appends of plain messages: the same records, results and errors as without them."""

import threading

import pytest

from mqtool.engine import FlushMode, PutStatus
from mqtool.engine.write.messages import BatchMessage
from mqtool.formats import message_batch
from tests.support.engine import HeldClock, open_small, tree
from tests.support.native import form, needs_native

pytestmark = needs_native

BODY, PROPERTIES, HOST = b"x" * 40, b"KEYS\1k\2", b"\x7f\0\0\1\0\0\x27\x0f"
INT_MAX = (1 << 31) - 1


class Text(str):
    """A topic of a class of its own."""

    __slots__ = ()


PUTS = {
    "plain": ("T", 0, BODY, PROPERTIES),
    "empty": ("T", 0, b"", b""),
    "all fields": ("T", 1, BODY, PROPERTIES, -5, 1, 77, HOST, HOST, 3, 1 << 40),
    "smallest and largest numbers": ("T", 0, BODY, b"", -INT_MAX - 1, 0, -1, None, None, INT_MAX, (1 << 63) - 1),
    "minus one": ("T", 0, BODY, b"", -1, 0, -1, None, None, -1, -1),
    "truth as a number": ("T", 0, BODY, b"", True),
    "a topic of another class": (Text("T"), 0, BODY, b""),
    "another kind of body": ("T", 0, bytearray(BODY), b""),
    "a view as body": ("T", 0, memoryview(BODY), b""),
    "text as body": ("T", 0, "text", b""),
    "no body": ("T", 0, None, b""),
    "flag too large": ("T", 0, BODY, b"", INT_MAX + 1),
    "reconsume times too large": ("T", 0, BODY, b"", 0, 0, 1, None, None, INT_MAX + 1),
    "system flag too large": ("T", 0, BODY, b"", 0, 1 << 40),
    "offset too large": ("T", 0, BODY, b"", 0, 0, 1, None, None, 0, 1 << 63),
    "time too large": ("T", 0, BODY, b"", 0, 0, 1 << 70),
    "flag of text": ("T", 0, BODY, b"", "1"),
    "born host of IPv6": ("T", 0, BODY, b"", 0, 0, 1, bytes(20)),
    "store host of IPv6": ("T", 0, BODY, b"", 0, 0, 1, None, bytes(20)),
    "empty hosts": ("T", 0, BODY, b"", 0, 0, 1, b"", b""),
    "light queues": ("T", 0, BODY, b"INNER_MULTI_DISPATCH\1%LMQ%a\2"),
    "prepared": ("T", 0, BODY, PROPERTIES, 0, 4),
    "rolled back": ("T", 0, BODY, PROPERTIES, 0, 12),
    "too large": ("T", 0, bytes(1 << 20), b""),
    "longest properties": ("T", 0, BODY, b"k" * 32767),
    "too long properties": ("T", 0, BODY, b"k" * 32768),
    "no topic": ("", 0, BODY, b""),
    "negative queue": ("T", -1, BODY, b""),
    "unhashable topic": (["T"], 0, BODY, b""),
}


def batch_of(*messages):
    return [BatchMessage(*one) for one in messages]


def encoded(*messages):
    return b"".join(message_batch.build(message_batch.make(*one)) for one in messages)


ONE, TWO = (BODY, PROPERTIES, 7), (b"", b"", -1)
BATCHES = {
    "list": (batch_of(ONE, TWO, ONE),),
    "tuple": (tuple(batch_of(ONE, TWO)),),
    "encoded": (encoded(ONE, TWO, ONE),),
    "encoded, as a view": (memoryview(encoded(ONE, TWO)),),
    "empty": ([],),
    "empty, encoded": (b"",),
    "all fields": (batch_of(ONE, TWO), b"", 0x31, 5, HOST, HOST, 3),
    "properties of all": (batch_of(ONE), b"a\1b\2"),
    "delayed": (batch_of(ONE), b"DELAY\0013\2"),
    "prepared": (batch_of(ONE), b"", 4),
    "hosts of IPv6": (batch_of(ONE, TWO), b"", 0, 5, bytes(20), bytes(20)),
    "cut off": (encoded(ONE, TWO)[:-1],),
    "too much": (encoded(ONE, TWO) + b"x",),
    "wrong length": (encoded(ONE)[:3] + b"\0" + encoded(ONE)[4:],),
    "plain tuples": ([ONE, TWO],),
    "body of text": (batch_of(("text", b"", 0)),),
    "another kind of body": (batch_of((bytearray(b"abc"), b"", 0)),),
    "flag too large": (batch_of(ONE, (BODY, b"", INT_MAX + 1)),),
    "flag of text": (batch_of((BODY, b"", "1"), ONE),),
    "too large": (batch_of(ONE, (bytes(1 << 20), b"", 0)),),
    "too large together": (batch_of(*[(bytes(30_000), b"", 0)] * 60),),
    "too long properties": (batch_of(ONE, (BODY, b"k" * 32768, 0)),),
    "inner name": (batch_of((BODY, b"INNER_NUM\0011\2", 0)),),
    "inner name, encoded, the last": (encoded(ONE, TWO, (BODY, b"INNER_NUM\001x\2INNER_BASE\0010\2", 0)),),
    "another inner name": (batch_of(ONE, (BODY, b"INNER_BASE\0011\2NOT_INNER_NUM\1x\2", 0)),),
    "inner batch": (batch_of(ONE), b"", 0x80),
}


def answers(root, calls, method, compiled):
    """The answers or errors of some calls of a store, each after an ordinary one, and its files."""
    found = []
    sizes = {"commit_log_file_size": 1 << 21}
    with form(compiled=compiled), open_small(root, HeldClock(), **sizes) as store:
        assert (store._append("T", 0, b"", b"", 0, 0, None, None, None, 0, 0) is None) or compiled
        for _ in range(2):
            store.put("T", 0, b"first of its queue", PROPERTIES)
            store.put("T", 1, b"first of its queue", PROPERTIES)
            for arguments in calls:
                try:
                    found.append(getattr(store, method)(*arguments))
                except Exception as error:  # noqa: BLE001 - all are compared
                    found.append(type(error))
        store.dispatch()
    return found, tree(root / "commitlog"), tree(root / "consumequeue")


@pytest.mark.parametrize("name", PUTS)
def test_puts(in_memory, name):
    calls = [PUTS[name], PUTS["plain"]]
    assert answers(in_memory / "a", calls, "put", False) == answers(in_memory / "b", calls, "put", True)


@pytest.mark.parametrize("name", BATCHES)
def test_batches(in_memory, name):
    calls = [("T", 0, *BATCHES[name]), ("T", 1, *BATCHES["list"])]
    assert answers(in_memory / "a", calls, "put_batch", False) == answers(in_memory / "b", calls, "put_batch", True)


@pytest.fixture
def compiled():
    with form(compiled=True):
        yield


def test_plain_puts_and_batches_are_appended_by_the_builtins(in_memory, compiled):
    with open_small(in_memory / "store") as store:
        store.put("T", 0, BODY, PROPERTIES)
        assert store._append("T", 0, BODY, PROPERTIES, 0, 0, None, None, None, 0, 0).queue_offset == 1
        assert store._append_batch("T", 0, batch_of(ONE, TWO), 0, None, None, None, 0).queue_offset == 2
        assert store._append_batch("T", 0, encoded(ONE, TWO), 0, None, None, None, 0).queue_offset == 4
        assert store.dispatch() == 6


def test_a_held_append_lock_is_waited_for(in_memory, compiled):
    with open_small(in_memory / "store") as store:
        store.put("T", 0, BODY, PROPERTIES)
        results = []
        with store._components.log.lock:
            waiting = threading.Thread(target=lambda: results.append(store.put("T", 0, BODY, PROPERTIES)))
            waiting.start()
            waiting.join(0.05)
            assert waiting.is_alive()
        waiting.join()
        assert results[0].queue_offset == 1


def test_a_closed_store_appends_nothing(in_memory, compiled):
    store = open_small(in_memory / "store")
    store.put("T", 0, BODY, PROPERTIES)
    store.close()
    before = tree(in_memory / "store" / "commitlog")
    assert store._append("T", 0, BODY, PROPERTIES, 0, 0, None, None, None, 0, 0) is None
    assert store.put("T", 0, BODY, PROPERTIES).status is PutStatus.SERVICE_NOT_AVAILABLE
    assert tree(in_memory / "store" / "commitlog") == before


@pytest.mark.slow
def test_threads_put_all_their_messages_in_order(in_memory, compiled):
    """With columns between them, whose encoding gives the interpreter's lock up while the append lock is held."""
    with open_small(in_memory / "store", commit_log_file_size=1 << 20, flush_mode=FlushMode.ASYNC_FLUSH) as store:

        def put(queue):
            for number in range(2000):
                body = b"%d %d" % (queue, number)
                if number % 10 < 8:
                    assert store.put("T", queue, body, b"KEYS\1k%d\2" % number).ok
                elif number % 10 == 8:
                    assert store.put_batch("T", queue, batch_of((body, b"", 0))).ok
                else:
                    assert store.put_many(columns(queue, body)).ok

        threads = [threading.Thread(target=put, args=(queue,)) for queue in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        store.dispatch()
        for queue in range(4):
            assert store.queue_bounds("T", queue) == (0, 2000)
            for number, (physical, size, _) in enumerate(store.units("T", queue, 0, 2000)):
                assert b"%d %d" % (queue, number) in bytes(store._components.log.read(physical, size))


def columns(queue, body):
    from mqtool.engine.write.columns import MessageColumns

    return MessageColumns(["T"], [0], queue, [body], [b""])
