"""A walk for fixed fields and topics finds what the ordinary walk finds: on real stores, and on ones with bytes changed."""

import random

import pytest

import mqtool
from mqtool.formats.commit_log import LAST_MILLIS
from mqtool.records import walk
from mqtool.records.damage import Damage
from mqtool.records.walk import ROWS
from tests.property.records import CONFIG, change_bytes, varied_store
from tests.support.builder import StoreBuilder
from tests.support.damage import CASES, base_config
from tests.support.native import form, needs_native
from tests.support.stores import STORES, copy_store
from tests.support.tiers import NIGHT, one_in

pytestmark = needs_native

REAL = [store for store in STORES if not store.name.startswith(("equeue", "tfchunk"))]
DAMAGED = [case for case in CASES.values() if case.kind != "store-empty"][:: 1 if NIGHT else 10]


def rows_of(frames):
    codes, names = frames.coded_topics
    columns = [frames.column(name).tolist() for name in ROWS]
    topics = [names[code] for code in codes.tolist()]
    return list(zip((frames.positions + frames.base).tolist(), frames.sizes.tolist(), *columns, topics, strict=True))


def found_by(log, start, end, *, fields):
    """The items of a walk, records one by one; how many of them came without their bytes."""
    items, without = [], 0
    for item in log.walk(start, end, refills=True, fields=fields):
        if isinstance(item, Damage):
            items.append(item)
        else:
            without += len(item) if not len(item.view) else 0
            items += rows_of(item)
    return items, without


def check_same(root, config, *, chance=None):
    """Compares the walks over a log, and over a part of it; returns how many records came without their bytes."""
    with mqtool.open(root, config) as opened, form(compiled=False):
        log = opened.commit_log
        parts = [(None, None)]
        if chance is not None:
            parts.append(tuple(sorted(chance.randrange(log.min_offset, log.max_offset + 1) for _ in range(2))))
        expected = [found_by(log, *part, fields=False)[0] for part in parts]
    with mqtool.open(root, config) as opened, form(compiled=True):
        found = [found_by(opened.commit_log, *part, fields=True) for part in parts]
    assert [items for items, _ in found] == expected
    return sum(without for _, without in found)


@pytest.mark.parametrize("store", REAL, ids=str)
def test_real_stores(store, tmp_path):
    assert check_same(copy_store(store.name, tmp_path), store.config) >= 0


@pytest.mark.parametrize("case", DAMAGED, ids=str)
def test_damaged_stores(case, damaged):
    assert check_same(damaged(case.id), base_config(case.base)) >= 0


@pytest.mark.parametrize("window", [1 << 9, 1 << 12, 1 << 20])
@pytest.mark.parametrize("seed", one_in(3, range(40 if NIGHT else 6)))
def test_stores_with_bytes_changed(seed, window, tmp_path, monkeypatch):
    monkeypatch.setattr(walk, "_WINDOW", window)
    monkeypatch.setattr(walk, "FIRST_STEP", 1 << 13)
    monkeypatch.setattr(walk, "_STEP", 1 << 14)
    monkeypatch.setattr("mqtool.records.walk.FIRST_WINDOW", 1 << 10)
    chance = random.Random(seed)
    root = varied_store(tmp_path / "store", chance)
    taken = check_same(root, CONFIG, chance=chance)
    files = sorted((root / "commitlog").iterdir())
    for _ in range(4):
        change_bytes(chance.choice(files), chance)
        check_same(root, CONFIG, chance=chance)
    assert taken > 0


def test_a_clean_log_is_read_without_bytes(tmp_path):
    builder = StoreBuilder(segment_size=1 << 18)
    for number in range(2000):
        builder.put(b"body %d" % number, topic=f"T{number % 40}", queue_id=number % 3, step=5)
    assert check_same(builder.write(tmp_path / "store"), {}) == 2000


def test_records_with_a_time_outside_the_calendar_keep_their_bytes(tmp_path):
    builder = StoreBuilder(segment_size=1 << 16)
    for born in (LAST_MILLIS, LAST_MILLIS + 1, -1, 5):
        builder.put(b"x", born_timestamp=born)
    root = builder.write(tmp_path / "store")
    assert check_same(root, {}) < 4


def test_a_log_with_very_many_topics_is_left_to_the_ordinary_walk(tmp_path, monkeypatch):
    monkeypatch.setattr(walk, "MAX_TOPICS", 10)
    builder = StoreBuilder(segment_size=1 << 18)
    for number in range(500):
        builder.put(b"x", topic=f"T{number}")
    assert check_same(builder.write(tmp_path / "store"), {}) < 20
