"""Administration: topics, groups, offsets, configuration, figures; as mqadmin asks for them."""

import asyncio
import json
import os
import re
import socket
import urllib.error
import urllib.request
from types import SimpleNamespace

import pytest

from mqtool.engine import FlushMode
from mqtool.formats import java
from mqtool.formats.release import V4_9, V5_5
from mqtool.protocol.command import Command
from mqtool.server.admin import port
from mqtool.server.admin.port import AdminHttp
from mqtool.server.net.connections import Connection
from mqtool.server.serve import ServeOptions, Server
from mqtool.store.config.broker_config import BrokerConfig
from mqtool.store.config.broker_keys import defaults
from tests.support.remoting import Client, bodies
from tests.support.stores import copy_store
from tests.unit.server.broker.conftest import until


def bare(text: bytes) -> dict:
    """JSON whose maps have objects as keys, as fastjson writes them: the keys become texts."""
    return json.loads(
        re.sub(rb'(?<=[{,])(\{"brokerName"[^}]*\}):', lambda match: json.dumps(match[1].decode()).encode() + b":", text)
    )


def put(client, topic, count):
    for number in range(count):
        client.put(topic, b"m%d" % number)
    until(lambda: client.call(30, topic=topic, queueId=0).fields["offset"] == str(count))


def test_a_topic_that_is_deleted_is_gone_with_its_messages(client, topic):
    put(client, topic, 3)
    assert client.call(215, topic=topic).code == 0
    assert client.call(351, topic=topic).code == 17
    assert client.put(topic, b"anew").fields["queueOffset"] == "0"


@pytest.mark.parametrize("code", [17, 215])
@pytest.mark.parametrize("name", ["TBW102", "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "CHECKPOINT_TOPIC"])
def test_topics_of_the_system_cannot_be_touched(client, code, name):
    answer = client.call(
        code, topic=name, defaultTopic="TBW102", readQueueNums=1, writeQueueNums=1, perm=6, order=False
    )
    assert (answer.code, "conflict with system topic" in answer.remark) == (29, True)


def test_a_group_is_made_changed_and_deleted(client):
    body = {"groupName": "GMade", "retryMaxTimes": 5, "consumeEnable": True, "attributes": None, "unheardOf": 1}
    assert client.call(200, json.dumps(body).encode()).code == 0
    found = client.call(201).json["subscriptionGroupTable"]["GMade"]
    assert (found["retryMaxTimes"], found["retryQueueNums"], found["groupRetryPolicy"]) == (
        5,
        1,
        {"type": "CUSTOMIZED"},
    )
    assert client.call(207, groupName="GMade", cleanOffset=True).code == 0
    assert "GMade" not in client.call(201).json["subscriptionGroupTable"]
    assert client.call(352, group="no name").code == 26  # one of a good name is made, as whoever consumes would make it


def test_tables_come_in_pages_to_those_who_ask_for_pages(client, topic):
    whole = client.call(21).json["topicConfigTable"]
    names = []
    while len(names) < len(whole):
        page = client.call(21, topicSeq=len(names), maxTopicNum=5)
        assert page.fields["totalTopicNum"] == str(len(whole))
        names += page.json["topicConfigTable"]
    assert sorted(names) == sorted(whole)


def test_progress_says_how_far_a_group_is(client, topic):
    put(client, topic, 4)
    client.heartbeat("c@1", consumers={"GProgress": [topic]})
    client.call(15, consumerGroup="GProgress", topic=topic, queueId=0, commitOffset=3)
    table = bare(client.call(208, consumerGroup="GProgress", topic=topic).body)["offsetTable"]
    assert len(table) == 4
    row = next(row for key, row in table.items() if json.loads(key)["queueId"] == 0)
    assert (row["brokerOffset"], row["consumerOffset"]) == (4, 3)
    assert row["lastTimestamp"] > 1_700_000_000_000
    assert client.call(300, topic=topic).json["groupList"] == ["GProgress"]


def test_the_bounds_of_every_queue_are_shown(client, topic):
    put(client, topic, 2)
    table = bare(client.call(202, topic=topic).body)["offsetTable"]
    assert sorted((json.loads(key)["queueId"], row["minOffset"], row["maxOffset"]) for key, row in table.items()) == [
        (0, 0, 2),
        (1, 0, 0),
        (2, 0, 0),
        (3, 0, 0),
    ]


def test_a_reset_sends_the_next_pull_there(client, topic):
    put(client, topic, 5)
    client.heartbeat("c@1", consumers={"GReset": [topic]})
    client.call(15, consumerGroup="GReset", topic=topic, queueId=0, commitOffset=5)
    answer = client.call(222, topic=topic, group="GReset", timestamp=0, isForce=True)
    assert {json.loads(key)["queueId"]: offset for key, offset in bare(answer.body)["offsetTable"].items()}[0] == 0
    moved = client.pull(topic, offset=5, group="GReset")
    assert (moved.code, moved.fields["nextBeginOffset"]) == (21, "0")
    assert len(bodies(client.pull(topic, offset=0, group="GReset"))) == 5
    assert client.call(222, topic=topic, group="no name", timestamp=0, isForce=True).code == 26


def test_a_reset_wakes_a_pull_that_is_held(client, connect, topic):
    put(client, topic, 5)
    client.heartbeat("c@1", consumers={"GResetHeld": [topic]})
    waiting = client.send_pull(topic, offset=5, group="GResetHeld", hold_ms=30_000)
    connect().call(222, topic=topic, group="GResetHeld", timestamp=0, isForce=True)
    answer = client.answer(waiting)
    assert (answer.code, answer.fields["nextBeginOffset"]) == (21, "0")


def test_offsets_are_cloned(client, topic):
    put(client, topic, 2)
    client.call(15, consumerGroup="TOOLS_CONSUMER", topic=topic, queueId=0, commitOffset=2)
    assert client.call(314, srcGroup="TOOLS_CONSUMER", destGroup="GClone", topic=topic).code == 0
    assert client.call(14, consumerGroup="GClone", topic=topic, queueId=0).fields["offset"] == "2"


def test_configuration_is_shown_changed_and_guarded(client, topic):
    put(client, topic, 5)
    assert b"maxTransferCountOnMessageInMemory=32\n" in client.call(26).body
    assert client.call(25, b"maxTransferCountOnMessageInMemory=2\n").code == 0
    assert len(bodies(client.pull(topic))) == 2
    assert client.call(25, b"maxTransferCountOnMessageInMemory=32\n").code == 0
    assert client.call(25, b"maxMessageSize=big\n").code == 29
    assert client.call(25, b"brokerName=other\n").code == 29


@pytest.mark.parametrize(("name", "count"), [("orders-5.5.0", 487), ("orders-4.9.7", 177)])
def test_the_configuration_has_every_key_of_the_release_and_the_values_of_the_store(tmp_path, name, count):
    """With namesrvAddr and storePathCommitLog, which have no default; the numbers are those of real brokers."""
    store = copy_store(name, tmp_path)
    options = ServeOptions(
        store, config=BrokerConfig({"storePathCommitLog": str(store / "commitlog")}), flush=FlushMode.SYNC_FLUSH
    )

    async def main() -> dict[str, str]:
        async with Server(options) as server:
            connection = await Connection.open(server.addresses["broker"])
            answer = await connection.call(Command(26), 20)
            connection.close()
            return java.parse_properties(bytes(answer.body))

    values = asyncio.run(main())
    shown = defaults(V5_5 if count == 487 else V4_9).keys() | {"namesrvAddr", "storePathCommitLog"}
    assert len(shown) == count
    assert shown <= values.keys()
    assert "*" not in values.values()
    assert (values["brokerFastFailureEnable"], values["haListenPort"], values["flushDiskType"]) == (
        "true",
        "0",
        "SYNC_FLUSH",
    )
    size = (store / "commitlog" / f"{0:020}").stat().st_size
    assert values["mappedFileSizeCommitLog"] == str(size) != str(1 << 30)


@pytest.mark.parametrize("key", ["mappedFileSizeCommitLog", "flushDiskType", "brokerRole", "namesrvAddr"])
def test_a_setting_that_is_read_at_the_start_only_cannot_be_changed(client, key):
    answer = client.call(25, f"fileReservedTime=1\n{key}=SYNC_FLUSH\n".encode())
    assert answer.code == 29
    assert b"fileReservedTime=72\n" in client.call(26).body


def test_limits_of_pulls_change_one_by_one(client, topic):
    put(client, topic, 5)
    try:
        assert client.call(25, b"maxTransferCountOnMessageInMemory=2\n").code == 0
        assert client.call(25, b"maxTransferBytesOnMessageInMemory=100000\n").code == 0
        assert len(bodies(client.pull(topic))) == 2
    finally:
        client.call(25, b"maxTransferCountOnMessageInMemory=32\nmaxTransferBytesOnMessageInMemory=262144\n")


def test_the_size_of_messages_changes_with_the_configuration(client, topic):
    """CommitLog.updateMaxMessageSize."""
    try:
        assert client.call(25, b"maxMessageSize=5000000\n").code == 0
        assert client.put(topic, b"x" * 4_500_000).code == 0
        assert client.call(25, b"maxMessageSize=9\n").code == 29
        assert client.put(topic, b"x" * 5_000_001).code == 13
    finally:
        assert client.call(25, b"maxMessageSize=4194304\n").code == 0
    assert client.put(topic, b"x" * 4_500_000).code == 13


def test_retention_changes_with_the_configuration(client, server):
    """CleanCommitLogService reads its keys in each run."""
    before = server.broker.messages._open.cleaner.policy
    try:
        assert client.call(25, b"fileReservedTime=1000\ndeleteWhen=05;06\ncleanFileForciblyEnable=false\n").code == 0
        policy = server.broker.messages._open.cleaner.policy
        assert (policy.reserved_hours, policy.delete_hours, policy.forcibly) == (1000, (5, 6), False)
        assert client.call(25, b"deleteWhen=five\n").code == 29
        assert server.broker.messages._open.cleaner.policy == policy
        assert b"deleteWhen=05;06\n" in client.call(26).body
    finally:
        client.call(25, b"fileReservedTime=72\ndeleteWhen=04\ncleanFileForciblyEnable=true\n")
    assert server.broker.messages._open.cleaner.policy == before


def test_name_servers_learn_at_once_that_a_broker_is_drained(client, server, topic):
    """AdminBrokerProcessor.updateBrokerConfig raises the data version; name servers ignore a version they know."""

    def permissions():
        with Client(server.namesrv) as asked:
            routes = [asked.call(105, topic=one, acceptStandardJsonOnly="true").json for one in (topic, "TBW102")]
        return [one["queueDatas"][0]["perm"] for one in routes]

    assert permissions() == [6, 7]
    assert client.call(25, b"brokerPermission=4\n").code == 0
    try:
        assert permissions() == [4, 4]
    finally:
        client.call(25, b"brokerPermission=6\n")
    assert permissions() == [6, 7]


@pytest.mark.parametrize(("allowed", "kept"), [("6", 15), ("4", 4), ("2", 2), ("0", 0)])
def test_a_route_keeps_all_permissions_if_the_broker_may_be_read_and_written(server, monkeypatch, allowed, kept):
    """BrokerController.registerBrokerAll limits them only if it may not be both."""
    monkeypatch.setitem(server.broker.settings.values, "brokerPermission", allowed)
    assert 15 & server.broker.permission_limit == kept


@pytest.mark.parametrize("key", ["brokerConfigPath", "rocketmqHome", "configBlackList"])
def test_keys_of_the_blacklist_are_refused(client, key):
    """AdminBrokerProcessor.validateBlackListConfigExist."""
    found = client.call(25, f"maxMessageSize=4194304\n{key}=/tmp\n".encode())
    assert (found.code, found.remark) == (16, "Can not update config in black list.")


def test_a_broker_that_is_drained_refuses_what_the_real_one_refuses(client, topic):
    """AbstractSendMessageProcessor.msgCheck, consumerSendMsgBack; AdminBrokerProcessor does not look at the setting."""
    client.create_topic("Ordered", order="true")
    assert client.call(200, b'{"groupName": "GDrained"}').code == 0
    client.call(25, b"brokerPermission=4\n")
    try:
        refused = client.put("Ordered")
        assert (refused.code, refused.remark) == (16, "the broker[127.0.0.1] sending message is forbidden")
        assert client.call(36, group="GDrained", offset=0, delayLevel=0).code == 16
        assert client.put(topic).code == 0
        assert client.create_topic("Drained", 1).code == 0
        assert client.call(215, topic="Drained").code == 0
    finally:
        client.call(25, b"brokerPermission=6\n")
    assert client.put("Ordered").code == 0


def test_figures_are_those_that_exporters_read(client, topic, server):
    """BrokerRuntimeStats of rocketmq-exporter, which fails if one is missing; AdminBrokerProcessor.prepareRuntimeInfo."""
    client.put(topic, b"later", properties={"DELAY": "1"})
    until(lambda: "scheduleMessageOffset_1" in client.call(28).json["table"])
    found = client.call(28).json["table"]
    numbers = """
        msgPutTotalTodayNow msgGetTotalTodayNow msgPutTotalTodayMorning msgGetTotalTodayMorning
        msgPutTotalYesterdayMorning msgGetTotalYesterdayMorning sendThreadPoolQueueHeadWaitTimeMills
        queryThreadPoolQueueHeadWaitTimeMills pullThreadPoolQueueHeadWaitTimeMills queryThreadPoolQueueSize
        pullThreadPoolQueueSize sendThreadPoolQueueSize sendThreadPoolQueueCapacity pullThreadPoolQueueCapacity
        queryThreadPoolQueueCapacity commitLogMinOffset commitLogMaxOffset bootTimestamp dispatchMaxBuffer brokerVersion
        pageCacheLockTimeMills getMessageEntireTimeMax putMessageTimesTotal startAcceptSendRequestTimeStamp
        putMessageEntireTimeMax earliestMessageTimeStamp remainTransientStoreBufferNumbs dispatchBehindBytes
        putMessageSizeTotal EndTransactionQueueSize EndTransactionThreadPoolQueueCapacity
    """
    assert [name for name in numbers.split() if not re.fullmatch(r"-?[0-9]+", found.get(name, ""))] == []
    fractions = "consumeQueueDiskRatio commitLogDiskRatio putMessageAverageSize putLatency99 putLatency999"
    assert all(float(found[name]) >= 0 for name in fractions.split())
    assert found["commitLogDiskRatio"] == found[f"commitLogDiskRatio_{server.store / 'commitlog'}"]
    assert found["remainTransientStoreBufferNumbs"] == "2147483647"
    assert found["brokerActive"] == "true"
    assert re.fullmatch(r"Total : [0-9.]+ [KMGTP]iB, Free : [0-9.]+ [KMGTP]iB\.", found["commitLogDirCapacity"])
    assert re.fullmatch(r"[0-9.]+ ([KM]i)?B", found["remainHowManyDataToFlush"])
    assert len(re.findall(r"\[[^ ]+\]:[0-9]+", found["putMessageDistributeTime"])) == 13
    assert re.fullmatch(r"[0-9]+,1", found["scheduleMessageOffset_1"])


def test_the_disk_is_as_full_as_retention_sees_it(client, server, monkeypatch):
    """UtilAll.getDiskPartitionSpaceUsedPercent: blocks that only the system may use are not there."""
    monkeypatch.setattr(
        os, "statvfs", lambda _path: SimpleNamespace(f_blocks=252, f_bfree=208, f_bavail=48, f_frsize=1)
    )
    found = client.call(28).json["table"]
    assert (found["commitLogDiskRatio"], found["consumeQueueDiskRatio"]) == ("0.48", "0.48")


def test_figures_count_what_went_in(client, topic):
    put(client, topic, 3)
    found = client.call(28).json["table"]
    assert int(found["putMessageTimesTotal"]) >= 3
    assert {"getTransferedTps", "getTransferredTps", "bootTimestamp", "commitLogMaxOffset"} <= set(found)
    assert all(isinstance(value, str) for value in found.values())
    assert client.call(315, statsName="TOPIC_PUT_NUMS", statsKey=topic).json["statsMinute"]["sum"] == 3
    assert client.call(315, statsName="TOPIC_PUT_NUMS", statsKey="none").code == 1


def test_units_of_a_queue_are_shown(client, topic):
    sent = client.put(topic, b"x", properties={"TAGS": "a"})
    until(lambda: client.call(30, topic=topic, queueId=0).fields["offset"] == "1")
    found = client.call(321, topic=topic, queueId=0, index=0, count=10).json
    assert (found["maxQueueIndex"], [row["tagsCode"] for row in found["queueData"]]) == (1, [97])
    assert found["queueData"][0]["physicOffset"] == int(sent.fields["msgId"][-16:], 16)


def test_a_message_is_consumed_directly_by_the_client_that_is_named(client, connect, topic):
    consumer = connect()
    consumer.heartbeat("direct@1", consumers={"GDirect": [topic]})
    sent = client.put(topic, b"now")
    waiting = client.send(309, consumerGroup="GDirect", clientId="direct@1", msgId=sent.fields["msgId"])
    asked = consumer.request(309)
    assert bodies(asked) == [b"now"]
    consumer.reply(asked, body=b'{"consumeResult":"CR_SUCCESS"}')
    assert client.answer(waiting).json["consumeResult"] == "CR_SUCCESS"


def test_metrics_have_rocketmq_s_names(client, server, topic):
    put(client, topic, 3)
    text = server.call(lambda: port.metrics_of(server.broker))
    assert re.search(rf'^rocketmq_messages_in_total{{.*topic="{topic}".*}} 3$', text, re.MULTILINE)
    assert re.search(r"^rocketmq_storage_dispatch_behind_bytes{.*} 0$", text, re.MULTILINE)
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r'[a-z_]+\{[a-z_]+="[^"]*"(,[a-z_]+="[^"]*")*\} [0-9.e+]+', line) for line in lines)


@pytest.fixture
def admin(server):
    """An admin port of the broker, and what ends it."""

    async def start() -> AdminHttp:
        http = AdminHttp(server.broker, "127.0.0.1", 0)
        await http.start()
        return http

    def run(work):
        return asyncio.run_coroutine_threadsafe(work, server._loop).result(10)

    http = run(start())
    yield http, lambda: run(http.stop())
    run(http.stop())


def test_the_admin_port_tells_health_and_nothing_else(admin):
    http, _ = admin
    found = {}
    for path in ("healthz", "readyz", "metrics", "secret"):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{http.port}/{path}", timeout=10) as answer:
                found[path] = answer.status
        except urllib.error.HTTPError as error:
            found[path] = error.code
            error.close()
    assert found == {"healthz": 200, "readyz": 200, "metrics": 200, "secret": 404}
    with pytest.raises(urllib.error.HTTPError, match="405") as refused:
        urllib.request.urlopen(f"http://127.0.0.1:{http.port}/healthz", data=b"x", timeout=10)
    with refused.value as answer:
        assert answer.read() == b"only GET\n"


def test_a_connection_on_which_nothing_is_asked_ends_with_the_admin_port(admin):
    http, stop = admin
    with socket.create_connection(("127.0.0.1", http.port), timeout=5) as silent:
        until(lambda: http._asked)
        stop()
        assert not http._asked
        assert silent.recv(1) == b""


def test_a_consumer_s_positions_are_asked_from_its_members(client, connect, topic):
    members = {name: connect() for name in ("c@1", "c@2")}
    for name, member in members.items():
        member.heartbeat(name, consumers={"GStatus": [topic]})
    for wanted, asked in (("", ["c@1", "c@2"]), ("c@2", ["c@2"])):
        opaque = client.send(223, topic=topic, group="GStatus", clientAddr=wanted)
        for name in asked:
            request = members[name].request(221)
            assert (request.fields["topic"], request.fields["group"]) == (topic, "GStatus")
            key = '{"brokerName":"b","queueId":0,"topic":"T"}'
            members[name].reply(request, body=b'{"messageQueueTable":{' + key.encode() + b":%d}}" % len(name))
        answer = client.answer(opaque)
        assert answer.code == 0
        found = bare(answer.body)["consumerTable"]
        assert {name: list(table.values()) for name, table in found.items()} == {name: [3] for name in asked}


def test_a_message_that_does_not_exist_is_not_consumed_directly(client, connect, topic):
    connect().heartbeat("direct@2", consumers={"GDirectNone": [topic]})
    fields = {"consumerGroup": "GDirectNone", "clientId": "direct@2"}
    for named in ("0" * 31, "7F00000100002A9F" + "0" * 8 + "FFFFFFFF"):
        answer = client.call(309, msgId=named, **fields)
        assert (answer.code, answer.remark) == (1, f"there is no message {named}")
