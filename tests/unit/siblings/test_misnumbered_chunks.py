"""Chunks whose name and header state different numbers: reported as such, and no chunk is missing for that."""

import struct
from collections import Counter

import pytest

from mqtool.records.damage import Damage
from mqtool.siblings.base import MISSING_CHUNK
from mqtool.siblings.equeue.explain import explain
from mqtool.siblings.equeue.kind import OpenedEQueue
from mqtool.siblings.tfchunk.kind import OpenedTFChunk
from tests.support.chunks import equeue_store, tfchunk_store
from tests.support.stores import copy_tree


def message_chunk(root, number):
    return root / f"message-chunks/message-chunk-{number:09d}"


def renumber(path, number, at=0, count=1):
    with path.open("r+b") as file:
        file.seek(at)
        file.write(struct.pack("<i", number) * count)


@pytest.fixture
def equeue(tmp_path):
    return copy_tree(equeue_store("equeue-small"), tmp_path / "store")


@pytest.fixture
def tfchunk(tmp_path):
    return copy_tree(tfchunk_store("plain"), tmp_path / "store")


def check(opened, missing_code, number_code):
    """Asserts that a message is read once, that nothing counts as missing, and that the number is reported."""
    with opened:
        rows = list(opened.rows(opened.tables[0].name))
        codes = Counter(one.code for one in opened.verify())
        salvaged = opened.salvage(None)
    assert MISSING_CHUNK not in {row.kind for row in rows if isinstance(row, Damage)}
    assert (codes[missing_code], codes[number_code]) == (0, 1)
    assert all(row["forwards"] for row in salvaged)
    return sum(not isinstance(row, Damage) for row in rows)


@pytest.mark.parametrize("change", ["header", "name"])
@pytest.mark.parametrize("number", [1, 2])
def test_a_message_chunk_of_another_number_is_not_missing(number, change, equeue):
    with OpenedEQueue(equeue) as opened:
        count = sum(1 for _ in opened.rows("equeue-message"))
    path = message_chunk(equeue, number)
    if change == "header":
        renumber(path, 7)
    else:
        path.rename(message_chunk(equeue, 7))
    assert check(OpenedEQueue(equeue), "equeue-chunk-missing", "equeue-chunk-number") == count


def test_a_queue_chunk_of_another_number_is_not_missing(equeue):
    renumber(equeue / "queue-chunks/orders/0/queue-chunk-000000001", 7)
    check(OpenedEQueue(equeue), "equeue-chunk-missing", "equeue-chunk-number")


def test_a_start_serves_nothing_of_a_chunk_whose_header_has_another_number(equeue):
    """A lower one: the broker loads the chunk as one of expired positions."""
    assert explain(equeue).is_harmless
    for number in (2, 1):
        renumber(message_chunk(equeue, number), number + 4)
        message_chunk(equeue, number).rename(message_chunk(equeue, number + 4))
    message_chunk(equeue, 0).unlink()
    renumber(message_chunk(equeue, 5), 3)
    found = explain(equeue)
    name = message_chunk(equeue, 5).name
    assert (found.starts, found.is_harmless, found.missing) == (True, False, [name])
    assert f"the messages of {name} are lost" in found.verdict


@pytest.mark.parametrize("change", ["header", "name"])
def test_a_chunk_of_eventstore_of_another_number_is_not_missing(change, tfchunk):
    path = tfchunk / "chunk-000001.000000"
    with OpenedTFChunk(tfchunk) as opened:
        count = sum(1 for _ in opened.rows("tfchunk-record"))
    if change == "header":
        renumber(path, 7, at=6, count=2)
    else:
        path.rename(tfchunk / "chunk-000007.000000")
    assert check(OpenedTFChunk(tfchunk), "tfchunk-chunk-missing", "tfchunk-numbers") == count
