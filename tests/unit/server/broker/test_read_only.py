"""A store that is served read-only answers as the release that wrote it, and passes over damaged messages."""

import json

import pytest

from mqtool.engine import GetStatus
from mqtool.formats import commit_log
from mqtool.server.broker.answers import RefusalError
from mqtool.server.broker.messages import ReadOnlyMessages
from mqtool.server.testing import MqServer
from mqtool.store import open_store
from mqtool.store.queues.by_time import Boundary
from mqtool.store.queues.get_message import TagFilter
from tests.support.engine import options_of
from tests.support.remoting import Client
from tests.support.stores import answers, copy_store, store_fixture, tree_digest
from tests.unit.recovery.stores import patch


@pytest.fixture(scope="module", params=["rollover-4.9.7", "propcrc-5.5.0", "crash-5.5.0"])
def served(request):
    """Name and messages of a real store: of either release, with a batch queue, and after a crash."""
    fixture = store_fixture(request.param)
    with open_store(fixture.directory, fixture.config) as store:
        yield request.param, ReadOnlyMessages(store, options_of(fixture.config, fixture.version))


def test_gets_are_answered_as_by_the_broker(served):
    name, messages = served
    for line in answers(name, "gets"):
        wanted = None if line["tags"] is None else TagFilter(line["tags"])
        found = messages.get_message(line["topic"], line["queueId"], line["offset"], line["max"], wanted)
        assert found.status.name == line["status"], line
        assert (found.next_begin_offset, found.min_offset, found.max_offset) == (
            line["nextBeginOffset"],
            line["minOffset"],
            line["maxOffset"],
        )
        stated = [commit_log.parse_record(record).physical_offset for record in found.records]
        assert stated == line["physicalOffsets"]


def test_queries_are_answered_as_by_the_broker(served):
    name, messages = served
    for line in answers(name, "queries"):
        found = messages.query_message(line["topic"], line["key"], line["max"], line["begin"], line["end"])
        assert found.physical_offsets == line["physicalOffsets"], line
        assert [commit_log.parse_record(record).physical_offset for record in found.records] == found.physical_offsets
        assert found.index_last_update_physical_offset == line["indexLastUpdatePhyOffset"]
        assert found.index_last_update_timestamp == line["indexLastUpdateTimestamp"]


def test_offsets_by_time_are_answered_as_by_the_broker(served):
    name, messages = served
    for line in answers(name, "times"):
        place = (line["topic"], line["queueId"], line["timestamp"])
        assert messages.offset_in_queue_by_time(*place) == line.get("lower", line["offset"]), line
        if "upper" in line:
            assert messages.offset_in_queue_by_time(*place, Boundary.UPPER) == line["upper"], line


def test_queues_have_the_units_of_the_broker(served):
    name, messages = served
    recorded = answers(name, "queues")
    assert set(messages.queues()) >= {(line["topic"], line["queueId"]) for line in recorded if line["units"]}
    for line in recorded:
        place, units = (line["topic"], line["queueId"]), line["units"]
        assert messages.queue_bounds(*place) == (line["minOffset"], line["maxOffset"])
        if line["type"] == "SimpleCQ":
            assert all_units(messages, *place) == [tuple(unit[1:4]) for unit in units]
        else:
            every = messages.units(*place, line["minOffset"], 1 << 30)
            assert messages.units(*place, line["minOffset"], 1) == every[:1]
        assert messages.units(*place, line["maxOffset"], 1) == []
    assert messages.max_offset == max(line["physicalOffset"] + line["storeSize"] for line in answers(name, "messages"))


def test_a_slave_is_served_read_only(tmp_path, caplog):
    """A broker appends to its log only as a master (HookUtils.checkBeforePutMessage)."""
    store = copy_store("ha-5.5.0/store-slave", tmp_path)
    before = tree_digest(store)
    with MqServer(store, brokerRole="SLAVE", brokerId="1") as server, Client(server.broker_address) as client:
        assert client.put("Replica").code == 16
        assert client.pull("Replica").code == 0
        with pytest.raises(RefusalError, match="serves its store read-only"):
            server.call(lambda: server.broker.writer)
    assert tree_digest(store) == before
    assert "set brokerRole=ASYNC_MASTER to accept messages" in caplog.text


@pytest.mark.parametrize(
    ("code", "document", "fields"),
    [
        (200, {"groupName": "G"}, {}),
        (225, {"groupConfigList": [{"groupName": "G"}]}, {}),
        (207, None, {"groupName": "G"}),
        (353, None, {"group": "G", "topic": "Replica", "readable": "false"}),
        (401, {"topic": "Replica", "consumerGroup": "G", "mode": "POP"}, {}),
    ],
)
def test_changes_that_a_read_only_broker_cannot_save_are_refused(slave, code, document, fields):
    answer = slave.call(code, b"" if document is None else json.dumps(document).encode(), **fields)
    assert (answer.code, "serves its store read-only" in answer.remark) == (16, True)


def test_a_slave_does_not_reset_offsets(slave):
    answer = slave.call(222, topic="Replica", group="G", timestamp="-1", isForce="true")
    assert (answer.code, answer.remark) == (1, "Can not reset offset in slave broker")


@pytest.fixture(scope="module")
def slave(tmp_path_factory):
    store = copy_store("ha-5.5.0/store-slave", tmp_path_factory.mktemp("slave"))
    with MqServer(store, brokerRole="SLAVE", brokerId="1") as server, Client(server.broker_address) as client:
        yield client


def all_units(messages, topic, queue_id):
    """The units of a queue; like the broker's iterator, one answer ends with a file."""
    offset, end = messages.queue_bounds(topic, queue_id)
    found = []
    while offset + len(found) < end:
        more = messages.units(topic, queue_id, offset + len(found), end)
        assert more != []
        found += more
    return found


def test_store_times_are_those_of_the_records(served):
    name, messages = served
    records = answers(name, "messages")
    assert messages.earliest_store_time() == records[0]["storeTimestamp"]
    for line in answers(name, "queues"):
        if line["type"] == "SimpleCQ" and line["units"]:
            [newest] = [one for one in records if one["physicalOffset"] == line["units"][-1][1]]
            place = line["topic"], line["queueId"]
            assert messages.store_time(*place, line["maxOffset"] - 1) == newest["storeTimestamp"]
            assert messages.store_time(*place, line["maxOffset"]) == -1


def test_nothing_is_said_of_queues_that_do_not_exist(served):
    _, messages = served
    assert messages.queue_bounds("None", 0) == (0, 0)
    assert messages.units("None", 0, 0, 1) == []
    assert messages.store_time("None", 0, 0) == -1
    assert messages.get_message("None", 0, 0).status is GetStatus.NO_MESSAGE_IN_QUEUE


def test_damaged_messages_are_passed_over(tmp_path):
    root, fixture = copy_store("rollover-5.5.0", tmp_path), store_fixture("rollover-5.5.0")
    line = next(line for line in answers(fixture.name, "queues") if len(line["units"]) > 10)
    place, units = (line["topic"], line["queueId"]), line["units"]
    for number in (4, -1):
        flip_body(root, units[number][1])
    offset, last = units[4][0], units[-1][0]
    with open_store(root, fixture.config) as store:
        messages = ReadOnlyMessages(store, options_of(fixture.config, fixture.version))
        assert messages.get_message(*place, offset, 1).queue_offsets == [offset + 1]
        assert messages.get_message(*place, offset - 2, 4).queue_offsets == [
            offset - 2,
            offset - 1,
            offset + 1,
            offset + 2,
        ]
        at_last = messages.get_message(*place, last, 1)
        assert (at_last.status, at_last.next_begin_offset) == (GetStatus.MESSAGE_WAS_REMOVING, last + 1)
        assert messages.store_time(*place, offset) == -1
        assert messages.message_at(units[5][1]) is not None
        assert messages.message_at(units[5][1] + 1) is None


def test_a_consumer_gets_past_a_missing_file_of_its_queue(tmp_path):
    root, fixture = copy_store("crash-5.5.0", tmp_path), store_fixture("crash-5.5.0")
    (root / "consumequeue" / "Flood" / "0" / f"{2000:020d}").unlink()
    with open_store(root, fixture.config) as store:
        messages = ReadOnlyMessages(store, options_of(fixture.config, fixture.version))
        got = messages.get_message("Flood", 0, 198, 1)
        assert (got.status, got.next_begin_offset, got.records) == (GetStatus.NO_MATCHED_MESSAGE, 199, [])
        assert messages.get_message("Flood", 0, 200, 1).queue_offsets == [200]


def flip_body(root, physical_offset):
    """Changes the first byte of a record's body."""
    segment = max(path for path in (root / "commitlog").iterdir() if int(path.name) <= physical_offset)
    at = physical_offset - int(segment.name) + commit_log.field_offset("body_length") + 4
    patch(segment, at, bytes([segment.read_bytes()[at] ^ 0xFF]))
