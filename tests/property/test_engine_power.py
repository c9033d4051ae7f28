"""Power cuts: sectors and names that were not synced are lost, kept or torn, and the store opens again."""

import random

import pytest

from mqtool.engine import Compat, FlushMode, GetStatus, open_store
from mqtool.formats import commit_log
from tests.support.engine import HeldClock, findings_of, small_options
from tests.support.engine_faults import LossyFiles, fast_directory, kill, remove

QUEUES = [("A", 0), ("A", 1), ("B", 0)]


@pytest.fixture
def root():
    found = fast_directory()
    yield found / "store"
    remove(found)


def body_of(number):
    return f"message {number} ".encode() * (1 + number % 40)


def served(store, topic, queue_id):
    """Bodies by queue offset, as a consumer gets them; every record must say that it belongs there."""
    offset, highest = store.queue_bounds(topic, queue_id)
    found = {}
    while offset < highest:
        got = store.get_message(topic, queue_id, offset)
        for number, data in zip(got.queue_offsets, got.records, strict=True):
            record = commit_log.parse_record(data)
            assert (record.topic.decode(), record.queue_id, record.queue_offset) == (topic, queue_id, number)
            assert commit_log.body_crc(record.body) == record.body_crc
            found[number] = record.body
        assert got.status is GetStatus.FOUND
        offset = got.next_begin_offset
    return found


def lose_power(store, files, chance):
    kill(store)
    files.power_cut(chance)


@pytest.mark.slow
@pytest.mark.parametrize("compat", list(Compat))
@pytest.mark.parametrize("seed", range(12))
def test_nothing_acknowledged_under_sync_flush_is_lost(root, seed, compat):
    chance, clock, files = random.Random(seed), HeldClock(), LossyFiles()
    options = small_options(flush_mode=FlushMode.SYNC_FLUSH, compat=compat)
    acknowledged = {queue: {} for queue in QUEUES}
    number = 0
    for _ in range(5):
        store = open_store(root, options, clock=clock, files=files, background=False)
        for topic, queue_id in QUEUES:
            found = served(store, topic, queue_id)
            assert acknowledged[topic, queue_id].items() <= found.items()
        for _ in range(chance.randrange(40)):
            clock.time += 50
            queue = chance.choice(QUEUES)
            result = store.put(*queue, body_of(number), f"KEYS\x01k{number}\x02".encode())
            assert result.ok
            acknowledged[queue][result.queue_offset] = body_of(number)
            number += 1
            if chance.random() < 0.2:
                store.dispatch()
            if chance.random() < 0.05:
                store.flush()
        lose_power(store, files, chance)
    open_store(root, options, clock=clock, files=files, background=False).close()
    assert findings_of(root, options) == []


@pytest.mark.slow
@pytest.mark.parametrize("pool", [0, 2])
@pytest.mark.parametrize("seed", range(12))
def test_after_a_power_cut_an_async_log_is_shorter_and_never_wrong(root, seed, pool):
    chance, clock, files = random.Random(seed), HeldClock(), LossyFiles()
    options = small_options(pool_buffers=pool)
    bodies = {}
    for _ in range(5):
        store = open_store(root, options, clock=clock, files=files, background=False)
        end = store.max_physical_offset
        bodies = {offset: body for offset, body in bodies.items() if offset < end}
        for topic, queue_id in QUEUES:
            for body in served(store, topic, queue_id).values():
                assert body in bodies.values()
        flushed = end
        for _ in range(chance.randrange(60)):
            clock.time += 50
            number = chance.randrange(1 << 20)
            result = store.put(*chance.choice(QUEUES), body_of(number))
            bodies[result.physical_offset] = body_of(number)
            if chance.random() < 0.1:
                flushed = store.flush()
            if chance.random() < 0.2:
                store.dispatch()
        lose_power(store, files, chance)
        reopened = open_store(root, options, clock=clock, files=files, background=False)
        assert reopened.max_physical_offset >= flushed
        reopened.close()
        assert not bodies or findings_of(root, options) == []


def test_a_store_that_was_closed_survives_a_power_cut_whole(root):
    clock, files = HeldClock(), LossyFiles()
    store = open_store(root, small_options(), clock=clock, files=files, background=False)
    for number in range(40):
        store.put("A", 0, body_of(number))
    store.close()
    files.power_cut(random.Random(1))
    with open_store(root, small_options(), clock=clock, files=files, background=False) as again:
        assert again.recovered.clean_stop
        assert list(served(again, "A", 0).values()) == [body_of(number) for number in range(40)]
