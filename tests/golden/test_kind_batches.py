"""Record batches hold what rows hold, record by record, damage by damage, of every real and every damaged store."""

import pyarrow as pa
import pytest

from mqtool.errors import MqtoolError
from mqtool.records.damage import Damage
from mqtool.siblings.arrow import arrow_schema
from mqtool.siblings.registry import recognise
from tests.support.chunks import (
    EQUEUE_CASES,
    EQUEUE_STORES,
    TFCHUNK_CASES,
    TFCHUNK_STORES,
    damaged,
    equeue_store,
    tfchunk_store,
)
from tests.support.tables import in_parts

ROOTS = [equeue_store(name) for name in EQUEUE_STORES] + [tfchunk_store(name) for name in TFCHUNK_STORES]
CASES = [(case, "equeue-damage") for case in EQUEUE_CASES] + [(case, "tfchunk/damage") for case in TFCHUNK_CASES]


def agree(opened, table):
    """Whether batches, taken as a whole and part by part, are the rows."""
    rows, found = list(opened.rows(table.name)), list(opened.batches(table.name))
    schema = arrow_schema(table)
    plain = [row for row in rows if not isinstance(row, Damage)]
    expected = pa.Table.from_pylist(plain, schema)
    joined = pa.Table.from_batches([one for one in found if not isinstance(one, Damage)], schema)
    parts = [one for part in opened.parts(table.name) for one in opened.batches(table.name, part)]
    apart = pa.Table.from_batches([one for one in parts if not isinstance(one, Damage)], schema)
    harm = [one for one in found if isinstance(one, Damage)] == [row for row in rows if isinstance(row, Damage)]
    return harm and joined.equals(expected) and apart.equals(expected)


def batched(opened):
    return [table for table in opened.tables if opened.batches(table.name) is not None]


@pytest.mark.parametrize("root", ROOTS, ids=lambda root: root.parent.name)
def test_batches_of_a_real_store_are_its_rows(root):
    with recognise(root).open(root) as opened:
        assert batched(opened)
        for table in batched(opened):
            assert agree(opened, table)


@in_parts("case, home", CASES, size=20)
def test_batches_of_a_damaged_store_are_its_rows(case, home, tmp_path):
    root = damaged(case, tmp_path / "store", home)
    kind = recognise(root)
    if kind is None:
        pytest.skip("nothing of the store is left")
    try:
        opened = kind.open(root)
    except MqtoolError as refusal:
        pytest.skip(f"is refused: {refusal}")
    with opened:
        assert [table.name for table in batched(opened) if not agree(opened, table)] == []


@pytest.mark.parametrize("window", [1, 5, 64, 300, 5000])
@pytest.mark.parametrize("name", ["equeue-small", "tfchunk/plain"])
def test_where_windows_end_changes_nothing(name, window, monkeypatch):
    kind = name.partition("/")[0].partition("-")[0]
    for module in ("mqtool.siblings.frames", "mqtool.siblings.equeue.start"):
        monkeypatch.setattr(f"{module}.FIRST_WINDOW", window)
        monkeypatch.setattr(f"{module}.WINDOW", window)
    root = equeue_store(name) if kind == "equeue" else tfchunk_store("plain")
    with recognise(root).open(root) as opened:
        for table in batched(opened):
            assert agree(opened, table)
        assert list(opened.verify()) == []
