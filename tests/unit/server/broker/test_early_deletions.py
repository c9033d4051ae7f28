"""A disk so full that unexpired messages go: the log, the metrics and the page say so, and a setting refuses instead."""

import logging
from pathlib import Path

import pytest

from mqtool.engine.disk.files import Files
from mqtool.engine.retention.rules import EarlyDeletion
from mqtool.server.admin import content, port
from mqtool.server.admin.content import take
from mqtool.server.broker.stats import EarlyDeletions
from mqtool.server.testing import MqServer
from tests.support.remoting import Client
from tests.unit.server.broker.conftest import until

SIZES = {
    "mappedFileSizeCommitLog": str(1 << 16),
    "mappedFileSizeConsumeQueue": "2000",
    "deleteCommitLogFilesInterval": "0",
}


class FullDisk(Files):
    def used_ratio(self, path):
        return 0.99


def fill(client, number):
    answers = [client.put("Full", b"x" * 4000, properties={"WAIT": "true"}).code for _ in range(number)]
    assert set(answers) == {0}


def use_full_disk(server):
    server.broker.messages._open.cleaner._files = FullDisk()
    server.broker.messages.clean()


@pytest.fixture
def served(request, tmp_path):
    with MqServer(tmp_path / "store", **SIZES, **getattr(request, "param", {})) as server:
        with Client(server.broker_address) as client:
            client.create_topic("Full")
            fill(client, 60)
            until(lambda: client.call(30, topic="Full", queueId=0).fields["offset"] == "60")
            for group, offset in (("Reader", 5), ("Done", 60)):
                client.call(200, b'{"groupName": "%s"}' % group.encode())
                assert client.call(15, consumerGroup=group, topic="Full", queueId=0, commitOffset=offset).code == 0
        yield server


@pytest.mark.slow
def test_deleted_messages_and_the_groups_that_lose_them_are_named_everywhere(served, caplog):
    caplog.set_level(logging.ERROR)
    use_full_disk(served)
    until(lambda: served.call(lambda: served.broker.early_deletions.files))
    gone = served.call(lambda: served.broker.messages.queue_bounds("Full", 0)[0])
    assert gone > 10
    assert "UNEXPIRED MESSAGES WERE DELETED" in caplog.text
    assert "cleanFileForciblyEnable=false" in caplog.text
    assert f"UNREAD MESSAGES WERE DELETED group=Reader topic=Full messages={gone - 5}" in caplog.text
    assert "group=Done" not in caplog.text
    text = served.call(lambda: port.metrics_of(served.broker))
    totals = {line.split("{")[0]: line.split(" ")[-1] for line in text.splitlines() if line.startswith("mqtool_un")}
    assert totals["mqtool_unexpired_messages_deleted_total"] == str(gone)
    assert totals["mqtool_unread_messages_deleted_total"] == str(gone - 5)
    snapshot = served.call(lambda: take(served.broker))
    assert content.verdict(snapshot)[0] == "losing messages"
    assert snapshot.unread == {("Full", "Reader"): gone - 5}


@pytest.mark.parametrize("served", [{"cleanFileForciblyEnable": "false"}], indirect=True)
def test_with_the_setting_new_messages_are_refused_and_old_ones_stay(served, caplog):
    use_full_disk(served)
    served.broker.messages.clean()
    logged = [record.getMessage() for record in caplog.records if "REFUSED" in record.getMessage()]
    assert logged == ["NEW MESSAGES ARE REFUSED because the disk is more than 90 % full; free space"]
    with Client(served.broker_address) as client:
        assert client.put("Full", b"x").code == 14
        assert client.call(31, topic="Full", queueId=0).fields["offset"] == "0"
    assert served.call(lambda: served.broker.early_deletions.files) == 0
    assert served.call(lambda: content.verdict(take(served.broker))) == (
        "not ready",
        "Some services of the broker do not work: the disk is too full; new messages are refused.",
    )
    served.broker.messages._open.cleaner._files = Files()
    served.broker.messages.clean()
    assert "new messages are accepted again" in caplog.text
    assert served.call(lambda: served.broker.problem) is None


class Offsets:
    """Twelve groups that have read two messages of T/0, one that has read all of them, and one of another topic."""

    def __init__(self):
        self.table = {("T", f"G{number}"): {0: 2} for number in range(12)}
        self.table |= {("T", "All"): {0: 9}, ("U", "Other"): {0: 0}}

    def pairs(self):
        return list(self.table)

    def of(self, group, topic):
        return self.table[topic, group]


def test_of_many_groups_that_lose_messages_ten_are_named_and_the_others_counted(caplog):
    deletions = EarlyDeletions(Offsets())
    queues = {("T", 0): (1, 6), ("T", 1): (0, 1), ("V", 0): (0, 7)}
    deletions.add([EarlyDeletion(0, (Path("00000000000000000000"),), queues)])
    assert (deletions.files, deletions.messages) == (1, 13)
    assert deletions.unread == {("T", "All"): 1} | {("T", f"G{number}"): 5 for number in range(12)}
    logged = [record.getMessage() for record in caplog.records]
    assert len([line for line in logged if line.endswith(" topic=T messages=5")]) == 10
    assert logged[-1] == "UNREAD MESSAGES WERE DELETED of 3 more groups; see /metrics for all"
