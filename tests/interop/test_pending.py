"""POP records in RocksDB: what a real broker with popConsumerKVServiceEnable has handed out is what `pending` lists."""

import json
import subprocess

import pytest

import mqtool
from mqtool.store.waiting.pending import PendingKind, pending_messages
from tests.support.served import KEYS

pytestmark = pytest.mark.interop
pytest.importorskip("rocksdict")


@pytest.mark.night
def test_messages_popped_from_a_broker_with_pop_records_in_rocksdb_are_listed(rocketmq, tmp_path):
    release = rocketmq("5.5.0")
    keys = KEYS | {"popConsumerKVServiceInit": "true", "popConsumerKVServiceEnable": "true"}
    keys |= {"recallMessageEnable": "true", "traceTopicEnable": "true"}
    broker = release.start_broker(tmp_path, **keys)
    home = tmp_path / "client"
    home.mkdir()
    command = release._java("Lives", broker.name_server, broker.address, home=home)
    command.insert(1, "-Dwait=1000")
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout
    broker.stop()
    rows = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    expected = {row["msgId"] for row in rows if row["life"].startswith("pophang-") and row["event"] == "delivered"}
    with mqtool.open(broker.store) as store:
        found = {one.unique_key for one in pending_messages(store) if one.group == "LivesHanging"}
        kinds = {one.kind for one in pending_messages(store) if one.group == "LivesHanging"}
    assert found == expected
    assert len(expected) == 3
    assert kinds == {PendingKind.POPPED}
