"""Queues with an extension (ConsumeQueueExt), closed and opened again: no unit is lost, and none is written twice."""

import pytest

MESSAGES = 60


def put(store, numbers):
    for number in numbers:
        assert store.put("T", 0, b"x", b"TAGS\x01Tag%d\x02" % (number % 3)).ok
    store.dispatch()


def files_of(store, *names):
    return {
        path.relative_to(store.path): path.read_bytes()
        for name in names
        for path in (store.path / name).rglob("*")
        if path.is_file()
    }


@pytest.fixture
def extended(opened):
    """Opens stores whose extensions take several files."""
    return lambda name: opened(name, consume_queue_ext=True, consume_queue_ext_file_size=1000, bit_map_of=bits)


def bits(request):
    return bytes([request.queue_offset % 251, 7])


def test_a_store_that_was_closed_meanwhile_has_the_same_files(extended):
    at_once = extended("at-once")
    put(at_once, range(MESSAGES))
    for first in range(0, MESSAGES, 20):
        in_parts = extended("in-parts")
        put(in_parts, range(first, first + 20))
        in_parts.close()
    at_once.close()
    kept = files_of(at_once, "consumequeue", "consumequeue_ext")
    assert len([path for path in kept if path.parts[0] == "consumequeue_ext"]) > 1
    assert files_of(in_parts, "consumequeue", "consumequeue_ext") == kept
