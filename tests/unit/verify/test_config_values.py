"""JSON tables of config/ that a broker refuses completely because of one key or value."""

import json
import shutil

import pytest

import mqtool
from mqtool.formats.release import Release
from mqtool.verify import verify
from mqtool.verify.config import _problem
from tests.support.stores import copy_store

REFUSED = "5.5 rejects a key or value in it, for example a number out of range"


def findings(store):
    with mqtool.open(store) as opened:
        return [(one.severity.value, one.evidence) for one in verify(opened).findings if one.code.startswith("config")]


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("consumerOffset.json", '"offsetTable":{', '"offsetTable":{"T@G":{1099511627776:0}'),
        ("topics.json", '"perm":6', '"perm":1099511627776'),
    ],
)
def test_a_number_with_which_a_broker_refuses_a_table_is_an_error(tmp_path, name, old, new):
    """What 5.5.0's parser says: integer overflow 1099511627776."""
    store = copy_store("orders-5.5.0", tmp_path)
    path = store / "config" / name
    if not path.exists():
        path.write_text('{"offsetTable":{}}', "utf-8")
    assert findings(store) == []
    good = path.read_text("utf-8")
    path.write_text(good.replace(old, new, 1), "utf-8")
    backup = path.with_name(f"{name}.bak")
    backup.write_text(good, "utf-8")
    assert findings(store) == [("warning", f"{REFUSED}; {name}.bak: can be read")]
    shutil.copy(path, backup)
    assert ("error", f"{REFUSED}; {name}.bak: {REFUSED}") in findings(store)


def test_an_unknown_release_or_text_that_only_a_broker_may_take_is_no_problem(tmp_path):
    path = tmp_path / "messageRequestMode.json"
    path.write_text('{"messageRequestModeMap":{}}', "utf-8")
    assert _problem(path, path.name, Release(5, 5)) == ""
    path = tmp_path / "topics.json"
    path.write_text(json.dumps({"topicConfigTable": {"T": {"perm": 1 << 40}}}), "utf-8")
    assert _problem(path, path.name, None) == ""
    assert _problem(path, path.name, Release(5, 5)) == REFUSED


def test_a_broker_that_has_no_message_yet_has_no_topics_file_yet(tmp_path):
    """As 4.9.7 leaves its directory some seconds after its first start."""
    for name in ("commitlog", "consumequeue", "config"):
        (tmp_path / name).mkdir()
    (tmp_path / "checkpoint").write_bytes(bytes(4096))
    for name in ("consumerFilter.json", "consumerOffset.json", "delayOffset.json"):
        (tmp_path / "config" / name).write_text("{}", "utf-8")
    assert findings(tmp_path) == []
