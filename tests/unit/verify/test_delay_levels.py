"""Delays are the configuration's; without it they are what the units of the schedule topic show, or unknown."""

import pytest
from msgspec.structs import replace

import mqtool
from mqtool.convert.queues import into_rocksdb
from mqtool.engine import open_store
from mqtool.engine.write.messages import delay_message
from mqtool.formats.consume_queue import CONSUME_QUEUE_UNIT, ROCKS_UNIT, UNIT_SIZE, unit_key
from mqtool.rebuild.job import rebuild
from mqtool.rebuild.settings import settings_of
from mqtool.store.config.rules import MAX_LEVELS
from mqtool.verify import State, verify
from tests.support.engine import HeldClock, small_options

LEVELS = "4s 8s 30s"
CONFIG = {"maxHashSlotNum": "10", "maxIndexNum": "20"}
TAGS = 12


def add(path, delays, levels, count=6):
    """Puts messages of some levels with this messageDelayLevel."""
    options = small_options(delay_levels=delays)
    store = open_store(path, options, clock=HeldClock(), background=False, hooks=[delay_message(options)])
    with store:
        for number in range(count):
            for level in levels:
                store.put("Orders", 0, b"body %d" % number, f"DELAY\1{level}\2".encode())
    return path


def checked(path, config=None):
    with mqtool.open(path, CONFIG | (config or {})) as store:
        found = verify(store)
    return found, next(check for check in found.checks if check.area == "consumequeue")


def queue(path, level):
    return path / f"consumequeue/SCHEDULE_TOPIC_XXXX/{level - 1}/{0:020d}"


def patch(path, number, difference):
    """Moves the time at which a unit's message is due."""
    data = bytearray(path.read_bytes())
    unit = CONSUME_QUEUE_UNIT.parse(data, number * UNIT_SIZE)
    at = number * UNIT_SIZE + TAGS
    data[at : at + 8] = (unit.tags_code + difference).to_bytes(8, "big")
    path.write_bytes(data)


def test_delays_on_which_the_units_agree_are_no_damage(tmp_path):
    found, check = checked(add(tmp_path / "store", LEVELS, (1, 2, 3)))
    assert (found.findings, check.state) == ((), State.CLEAN)


def test_a_level_beyond_the_default_ones_is_known_by_its_units(tmp_path):
    many = " ".join(f"{number}s" for number in range(101, 121))
    found, check = checked(add(tmp_path / "store", many, (1, 20)))
    assert (found.findings, check.state) == ((), State.CLEAN)


def test_a_configuration_that_contradicts_the_units_is_believed(tmp_path):
    found, check = checked(add(tmp_path / "store", LEVELS, (1,)), {"messageDelayLevel": "1s 2s"})
    assert ({one.code for one in found.findings}, check.state) == ({"queue-wrong-tags"}, State.CORRUPT)


def test_a_flipped_bit_is_damage_with_and_without_the_configuration(tmp_path):
    patch(queue(add(tmp_path / "store", LEVELS, (1, 2)), 2), 3, 1 << 10)
    for config in ({}, {"messageDelayLevel": LEVELS}):
        found, check = checked(tmp_path / "store", config)
        assert ([one.code for one in found.findings], check.state) == (["queue-wrong-tags"], State.CORRUPT)


def test_levels_that_were_changed_are_unknown_until_the_configuration_is_given(tmp_path):
    path = add(tmp_path / "store", LEVELS, (1, 2), count=5)
    add(path, "4s 9s", (1, 2), count=3)
    found, check = checked(path)
    assert {(one.code, one.severity) for one in found.findings} == {("queue-other-delay", "note")}
    assert (check.state, found.state) == (State.UNKNOWN, State.UNKNOWN)
    assert "--config with messageDelayLevel" in check.detail
    found, check = checked(path, {"messageDelayLevel": LEVELS})
    assert check.state is State.CORRUPT


def test_a_level_beyond_the_last_is_not_inferred(tmp_path):
    path = add(tmp_path / "store", LEVELS, (1, 2))
    queue(path, 2).parent.rename(path / "consumequeue/SCHEDULE_TOPIC_XXXX" / str(MAX_LEVELS))
    with mqtool.open(path, CONFIG) as store:
        assert len(store.dispatch_rules.delay_levels) == 18
    (path / "consumequeue/SCHEDULE_TOPIC_XXXX" / str(MAX_LEVELS)).rename(queue(path, MAX_LEVELS).parent)
    with mqtool.open(path, CONFIG) as store:
        assert len(store.dispatch_rules.delay_levels) == MAX_LEVELS


def test_queues_in_rocksdb_show_their_delays_too(tmp_path):
    rocksdict = pytest.importorskip("rocksdict")
    add(tmp_path / "store", LEVELS, (1, 2))
    path = tmp_path / "rocks"
    with mqtool.open(tmp_path / "store", CONFIG) as store:
        into_rocksdb(store, path)
    assert checked(path)[1].state is State.CLEAN
    assert checked(path, {"messageDelayLevel": "1s 2s"})[1].state is State.CORRUPT
    options = rocksdict.Options(raw_mode=True)
    families = {"offset": options, "default": options}
    database = rocksdict.Rdict(str(path / "consumequeue"), options, column_families=families)
    key = unit_key(b"SCHEDULE_TOPIC_XXXX", 0, 3)
    unit = ROCKS_UNIT.parse(database[key])
    database[key] = ROCKS_UNIT.build(replace(unit, tags_code=unit.tags_code + 1000))
    database.close()
    found, check = checked(path)
    assert ([one.code for one in found.findings], check.state) == (["queue-other-delay"], State.UNKNOWN)


def test_a_rebuild_writes_the_delays_that_the_units_show(tmp_path):
    path = add(tmp_path / "store", LEVELS, (1, 2))
    with mqtool.open(path, CONFIG | {"mappedFileSizeConsumeQueue": "200"}) as store:
        settings = settings_of(store)
        rebuild(store, tmp_path / "again", settings)
    assert settings.evidence["delay_levels"] == "the units of SCHEDULE_TOPIC_XXXX"
    again = tmp_path / "again"
    assert [queue(again, level).read_bytes() for level in (1, 2)] == [
        queue(path, level).read_bytes() for level in (1, 2)
    ]
