"""Hostile stores of other kinds: any bytes anywhere end in values or in one clear error, and nothing is written."""

import contextlib
import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mqtool.errors import MqtoolError
from mqtool.formats import equeue
from mqtool.siblings.equeue.listing import settings_of
from mqtool.siblings.equeue.salvage import salvage_chunk
from mqtool.siblings.equeue.start import start
from mqtool.siblings.registry import recognise
from mqtool.siblings.tfchunk.kind import report
from tests.support.chunks import equeue_store, tfchunk_store
from tests.support.stores import copy_tree, fixture, tree_digest

LIMITS = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
INTERESTING = st.sampled_from([b"\0" * 4, b"\xff" * 4, b"\xff\xff\xff\x7f", b"\0\0\0\x80", b"\1\0\0\0", b"\0" * 128])
EDITS = st.lists(
    st.tuples(
        st.integers(0, 1 << 30),
        st.integers(0, 1 << 30),
        st.one_of(INTERESTING, st.binary(max_size=24)),
        st.sampled_from(["write", "write", "write", "cut", "delete"]),
    ),
    min_size=1,
    max_size=4,
)


def edited(source, target, edits):
    """A copy in which random files got random bytes, lost their end, or are gone."""
    if target.exists():
        shutil.rmtree(target)
    root = copy_tree(source, target)
    for file, place, data, how in edits:
        files = sorted(path for path in root.rglob("*") if path.is_file())
        if not files:
            break
        path = files[file % len(files)]
        content = bytearray(path.read_bytes())
        at = place % (len(content) + 1)
        if how == "delete":
            path.unlink()
        else:
            content[at : at + len(data)] = data
            path.write_bytes(content[:at] if how == "cut" else content)
    return root


def read_everything(root):
    """Everything that can be asked of a store; errors that are ours are answers."""
    kind = recognise(root)
    if kind is None:
        return
    with contextlib.suppress(MqtoolError), kind.open(root) as opened:
        opened.layout()
        for table in opened.tables:
            assert all(item is not None for item in opened.rows(table.name))
        assert all(str(finding) for finding in opened.verify())
        if kind.name == "equeue":
            assert all(salvage_chunk(opened.store, chunk) for chunk in opened.store.chunks)
            start(root, settings_of(root), equeue.CURRENT).close()
        elif kind.name == "tfchunk":
            assert all(report(opened.database))


@pytest.mark.slow
@pytest.mark.parametrize(
    "source",
    [
        equeue_store("equeue-small"),
        equeue_store("equeue-broker"),
        tfchunk_store("plain"),
        tfchunk_store("scavenged"),
        tfchunk_store("version2"),
        fixture("tieredstore-5.5.0/store/tiered"),
    ],
    ids=lambda path: path.parent.name,
)
@given(edits=EDITS)
@LIMITS
def test_random_damage_ends_in_values_or_one_error_and_changes_nothing(source, tmp_path, edits):
    root = edited(source, tmp_path / "store", edits)
    before = tree_digest(root)
    read_everything(root)
    assert tree_digest(root) == before


@pytest.mark.parametrize("size", [0, 1, 4, 127, 128, 129, 255, 256, 257, 4096])
@pytest.mark.parametrize("byte", [0, 0xFF, 2])
def test_chunks_of_one_byte_value_are_no_stores_that_anything_fails_on(size, byte, tmp_path):
    for number, path in enumerate(["message-chunks/message-chunk-000000000", "chunk-000000.000000"]):
        target = tmp_path / str(number) / path
        target.parent.mkdir(parents=True)
        target.write_bytes(bytes([byte]) * size)
        read_everything(tmp_path / str(number))
        assert target.stat().st_size == size
