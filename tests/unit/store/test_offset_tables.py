"""All commands take positions from the place that a broker with the same configuration reads."""

import json

import pytest

import mqtool
from mqtool.formats import config_files
from mqtool.verify import verify
from tests.support.stores import copy_store


@pytest.fixture
def store(tmp_path):
    """A store with positions in both files, one larger in the file of LMQ."""
    root = copy_store("orders-5.5.0", tmp_path)
    lmq = root / "config" / "lmqConsumerOffset.json"
    found = config_files.parse_consumer_offsets(lmq.read_bytes())
    plain = {"offsetTable": {key: dict.fromkeys(map(str, value), 1) for key, value in found.offset_table.items()}}
    (root / "config" / "consumerOffset.json").write_text(json.dumps(plain))
    return root


@pytest.mark.parametrize(
    ("config", "from_lmq"), [({"enableLmq": True}, True), ({"enableLmq": False}, False), ({}, False)]
)
def test_positions_are_those_that_a_broker_with_the_configuration_reads(store, config, from_lmq):
    with mqtool.open(store, config) as opened:
        read = opened.metadata.offset_tables.read
        positions = opened.metadata.consumer_offsets
        lags = {(lag.group, lag.topic, lag.queue_id): lag.consumer_offset for lag in opened.lags()}
    assert (read.file_name == "lmqConsumerOffset.json") is from_lmq
    assert positions == read.offsets.by_group()
    assert lags
    assert (set(lags.values()) == {1}) is not from_lmq


def test_a_broker_whose_file_of_positions_is_missing_has_none(store):
    (store / "config" / "consumerOffset.json").unlink()
    with mqtool.open(store, {"enableLmq": False}) as opened:
        tables = opened.metadata.offset_tables
        assert opened.metadata.consumer_offsets == {}
    assert (tables.read, tables.written) == (None, "config/consumerOffset.json")
    assert [table.file_name for table in tables.tables] == ["lmqConsumerOffset.json"]


@pytest.mark.parametrize("config", [{"enableLmq": True}, {}])
def test_an_empty_file_of_positions_that_the_broker_does_not_read_is_a_note(store, config):
    """LmqConsumerOffsetManager.configFilePath (4.9.7, 5.5.0): with enableLmq a broker never opens consumerOffset.json."""
    (store / "config" / "consumerOffset.json").write_bytes(b"")
    with mqtool.open(store, config) as opened:
        assert opened.metadata.offset_tables.read.file_name == "lmqConsumerOffset.json"
        result = verify(opened)
    (finding,) = (finding for finding in result.findings if finding.code.startswith("config-"))
    assert (finding.code, finding.severity.value) == ("config-unreadable", "note")
    assert "a broker reads config/lmqConsumerOffset.json instead" in finding.evidence
    assert result.state.value == "clean"


def test_an_unreadable_file_of_positions_that_the_broker_reads_is_an_error(store):
    (store / "config" / "consumerOffset.json").write_bytes(b"")
    with mqtool.open(store, {"enableLmq": False}) as opened:
        result = verify(opened)
    assert [(one.code, one.severity.value) for one in result.findings if one.code.startswith("config-")] == [
        ("config-unreadable", "error")
    ]
