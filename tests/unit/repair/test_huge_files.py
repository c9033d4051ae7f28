"""Sparse files of a terabyte and links to devices among the files of a store: a plan reads none of them."""

import os

import pytest

from mqtool.formats import commit_log
from mqtool.repair import RebuildIndex, RebuildMetadata, SetAside, apply, make_plan, undo
from mqtool.repair.files import fingerprint
from mqtool.repair.from_findings import changes_of
from mqtool.store.files import LARGEST
from mqtool.store.store import open_store
from mqtool.verify import State, verify
from tests.support.stores import copy_store

TERABYTE = 1 << 40
ORDER_INFO = "config/consumerOrderInfo.json"


@pytest.fixture
def root(in_memory):
    return copy_store("orders-5.5.0", in_memory)


def sparse(path, size=TERABYTE):
    path.parent.mkdir(exist_ok=True)
    path.touch()
    os.truncate(path, size)
    return path


def test_a_sum_is_of_files_that_a_broker_may_have(root):
    path = sparse(root / "config" / "x", 1 << 20)
    assert fingerprint(path).sha256 == "30e14955ebf1352266dc2ff8067e68104607e750abb9d3b36582b8af909fcb58"
    os.truncate(path, LARGEST + 1)
    assert (fingerprint(path).sha256, fingerprint(path).size) == (None, LARGEST + 1)


def test_a_sparse_terabyte_is_planned_applied_and_undone_by_its_size_and_time(root):
    path = sparse(root / ORDER_INFO)
    plan = make_plan(root, SetAside((ORDER_INFO,)))
    assert [(step.path, step.before.size, step.before.sha256) for step in plan.steps] == [(ORDER_INFO, TERABYTE, None)]
    assert any(note.startswith(f"{ORDER_INFO}: {TERABYTE} bytes") and "not read" in note for note in plan.notes)
    apply(plan, backup_acknowledged=True, verify_after=False)
    assert not path.exists()
    undo(root)
    assert path.stat().st_size == TERABYTE


def test_what_a_plan_was_worked_out_from_is_named_where_it_was_not_read(root):
    sparse(root / ORDER_INFO)
    (root / "config" / "topics.json").unlink()
    plan = make_plan(root, RebuildMetadata(("config/topics.json",)))
    assert any(note.startswith(f"{ORDER_INFO}: {TERABYTE} bytes") for note in plan.notes)


def test_an_index_file_of_a_terabyte_is_replaced_and_not_read(root):
    name = min(path.name for path in (root / "index").iterdir())
    sparse(root / "index" / name)
    plan = make_plan(root, RebuildIndex())
    assert (f"index/{name}", TERABYTE) in [(step.path, step.before and step.before.size) for step in plan.steps]


def test_a_record_behind_a_hole_of_a_terabyte_is_found(root):
    """The file holds records found nowhere else: it is not finalized away."""
    data = min((root / "commitlog").iterdir()).read_bytes()
    record = bytearray(data[: int.from_bytes(data[:4], "big")])
    at = commit_log.field_offset("physical_offset")
    record[at : at + 8] = TERABYTE.to_bytes(8, "big")
    with sparse(root / "stray").open("r+b") as file:
        file.seek(TERABYTE)
        file.write(record)
    plan = make_plan(root, SetAside(("stray",)))
    assert any("stray holds 1 record(s) that exist nowhere else" in note for note in plan.notes)


@pytest.mark.slow
@pytest.mark.parametrize("tree", ["consumequeue/Orders/0", "commitlog"])
def test_a_file_that_no_broker_can_map_is_a_stray_that_a_plan_sets_aside(tree, root):
    name = f"{tree}/{max(path.name for path in (root / tree).iterdir())}"
    if tree == "commitlog":
        name = f"{tree}/{1 << 40:020d}"
    sparse(root / name)
    with open_store(root) as store:
        found = verify(store)
        assert name in [one.file for one in found.findings if one.code.endswith("-stray-file")]
        proposal = changes_of(store, found.findings)
    plan = make_plan(root, proposal.changes, must_repair=True)
    assert name in [step.path for step in plan.steps if step.before and step.before.size == TERABYTE]
    apply(plan, backup_acknowledged=True)
    with open_store(root) as store:
        assert verify(store).state is State.CLEAN


@pytest.mark.slow
@pytest.mark.parametrize("make", [sparse, lambda path: path.symlink_to("/dev/zero"), os.mkfifo, os.mkdir])
def test_a_table_that_cannot_be_composed_is_left_and_the_rest_is_planned(make, root):
    """The log tells nothing of it."""
    (root / ORDER_INFO).unlink(missing_ok=True)
    make(root / ORDER_INFO)
    (root / "config" / "topics.json").unlink()
    (root / "config" / "topics.json.bak").unlink(missing_ok=True)
    with open_store(root) as store:
        proposal = changes_of(store, verify(store).findings)
    assert proposal.changes == (RebuildMetadata(("config/topics.json",)),)
    assert [(one.code, one.file) for one in proposal.remaining] == [("config-unreadable", ORDER_INFO)]
    assert [step.path for step in make_plan(root, proposal.changes).steps] == ["config/topics.json"]
