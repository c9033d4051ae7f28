"""The state file of `verify`: what it saved is not used once a file that it was read from has changed."""

import os

import mqtool
from mqtool.formats.consume_queue import parse_ext_unit
from mqtool.verify import Options, State, verify
from tests.support.stores import copy_store, store_fixture
from tests.support.unreadable import unreadable

NAME = "cqext-5.5.0"
TAGS = slice(2, 10)


def checked(root, state=None):
    with mqtool.open(root, store_fixture(NAME).config) as store:
        return verify(store, Options(state=state))


def test_a_changed_extension_of_a_queue_is_read_again(tmp_path):
    root, state = copy_store(NAME, tmp_path), tmp_path / "state"
    assert checked(root, state).findings == ()
    path = root / "consumequeue_ext" / "Ext" / "0" / ("0" * 20)  # some units of the other queue have no tags
    data = bytearray(path.read_bytes())
    assert parse_ext_unit(data, 0) is not None
    data[TAGS] = bytes(8)
    path.write_bytes(data)
    os.utime(path, ns=(0, 0))  # another time than before, however coarse the clock is
    found = checked(root, state).findings
    assert "queue-wrong-tags" in {one.code for one in found}
    assert found == checked(root).findings


def test_what_could_not_be_read_is_tried_again(tmp_path, monkeypatch):
    root, state = copy_store(NAME, tmp_path), tmp_path / "state"
    for tree in ("commitlog", "consumequeue", "consumequeue_ext", "index"):
        path = next(one for one in (root / tree).rglob("0" * 20 if tree != "index" else "*") if one.is_file())
        with unreadable(monkeypatch, path):
            assert checked(root, state).state is State.UNKNOWN, tree
        assert checked(root, state).state == checked(root).state, tree
        state.unlink()
