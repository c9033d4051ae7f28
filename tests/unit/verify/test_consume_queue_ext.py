"""Filter bits and times of ConsumeQueueExt units, against their records and the filters of consumer groups."""

import json

import pytest

import mqtool
from mqtool.formats.consume_queue import EXT_HEAD_SIZE, parse_ext_unit
from mqtool.verify import State, verify
from tests.support.stores import copy_store, read_keys, store_fixture

NAMES = ("cqext-4.9.7", "cqext-5.5.0")
TIME = 10


def units(path):
    """Position and unit of an extension file, front to back."""
    data, at = path.read_bytes(), 0
    while (unit := parse_ext_unit(data, at)) is not None:
        yield at, unit
        at += unit.size


def patch(path, position, data):
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def checked(root, name):
    with mqtool.open(root, read_keys(name)) as store:
        return verify(store)


@pytest.fixture(params=NAMES)
def passed(request, tmp_path):
    """A store, and an extension file with the position and unit of a message that a filter accepted."""
    root = copy_store(request.param, tmp_path)
    found = ((path, *one) for path in sorted((root / "consumequeue_ext").rglob("0" * 20)) for one in units(path))
    return request.param, root, *next(one for one in found if any(one[2].bit_map))


def test_a_bit_that_a_group_needs_is_missing(passed):
    name, root, path, at, unit = passed
    patch(path, at + EXT_HEAD_SIZE, bytes(len(unit.bit_map)))
    (one,) = checked(root, name).findings
    assert (one.code, one.evidence.split()[0]) == ("ext-missing-bits", "1")
    assert unit.bit_map.hex() in one.evidence


def test_bits_too_many_may_be_those_of_a_filter_that_was_removed(passed):
    name, root, path, at, unit = passed
    patch(path, at + EXT_HEAD_SIZE, b"\xff" * len(unit.bit_map))
    assert checked(root, name).findings == ()


def test_another_time_than_the_record_s_is_reported(passed):
    name, root, path, at, unit = passed
    patch(path, at + TIME, (unit.store_timestamp + 1).to_bytes(8, "big"))
    (one,) = checked(root, name).findings
    assert one.code == "ext-wrong-unit"
    assert f"time {unit.store_timestamp + 1}, but the record was stored at {unit.store_timestamp}" in one.evidence


def test_a_filter_that_cannot_be_evaluated_leaves_the_bits_unknown(passed):
    name, root, *_ = passed
    path = root / "config/consumerFilter.json"
    whole = json.loads(path.read_bytes())
    next(iter(whole["filterDataByTopic"].values()))["groupFilterData"]["ExtHigh"]["expression"] = "a >"
    path.write_text(json.dumps(whole))
    found = checked(root, name)
    (check,) = (check for check in found.checks if check.area == "consumequeue_ext")
    assert (found.findings, check.state) == ((), State.UNKNOWN)
    assert "filter of ExtHigh on Ext" in check.detail


@pytest.mark.parametrize("name", NAMES)
def test_units_with_the_same_fault_are_one_finding_and_an_address_of_nothing_has_its_own(name, tmp_path):
    root = copy_store(name, tmp_path)
    path = root / "consumequeue_ext" / "Ext" / "1" / ("0" * 20)
    every = list(units(path))
    for at, unit in every:
        patch(path, at + TIME, (unit.store_timestamp + 1).to_bytes(8, "big"))
    (one,) = checked(root, name).findings
    assert (one.code, one.queue_id) == ("ext-wrong-unit", 1)
    assert one.evidence.startswith(f"{len(every)} unit(s), the first at queue offset 0: time ")
    address = -(1 << 63) + 5_000_000  # ConsumeQueueExt.decorate
    patch(min((root / "consumequeue/Ext/1").iterdir()), 12, address.to_bytes(8, "big", signed=True))
    found = {one.code: one.evidence for one in checked(root, name).findings}
    assert found.keys() >= {"ext-wrong-unit", "ext-dangling-address"}
    assert found["ext-wrong-unit"].startswith(f"{len(every) - 1} unit(s), the first at queue offset 1: ")
    assert found["ext-dangling-address"] == "no unit at extension offset 5000000"


@pytest.mark.parametrize("name", NAMES)
def test_bits_of_a_record_that_is_damaged_are_not_compared(name, tmp_path):
    root = copy_store(name, tmp_path)
    path = root / "consumequeue_ext" / "Ext" / "1" / ("0" * 20)
    at, unit = next(units(path))
    patch(path, at + TIME, (unit.store_timestamp + 1).to_bytes(8, "big"))
    with mqtool.open(root, store_fixture(name).config) as store:
        record = int(store.queue("Ext", 1).units()[0]["physical_offset"])
    segment = max(path for path in (root / "commitlog").iterdir() if int(path.name) <= record)
    patch(segment, record - int(segment.name) + 4, bytes(4))
    found = {one.code for one in checked(root, name).findings}
    assert "ext-wrong-unit" not in found
    assert any(code.startswith("log-") for code in found)
