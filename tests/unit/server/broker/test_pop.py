"""Popping: what goes out is invisible, written down, and comes again unless it is acknowledged."""

import asyncio
import base64
import json
import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from mqtool.protocol import Command, encode
from mqtool.server.net.connections import Connection
from mqtool.server.serve import ServeOptions, Server
from mqtool.server.testing import MqServer
from tests.support.remoting import Client, bodies, records
from tests.support.stores import answers, copy_store, tree_digest
from tests.unit.server.broker.conftest import until
from tests.unit.server.broker.test_send import batch_of

REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"


def pop(client, topic, *, invisible=60_000, poll=0, group="GPop", queue=-1, count=8, order=False, **more):
    fields = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": queue,
        "maxMsgNums": count,
        "invisibleTime": invisible,
        "pollTime": poll,
        "bornTime": 0,
        "initMode": 0,
        "exp": "*",
        "expType": "TAG",
        "order": order,
    } | more
    return client.call(200050, **fields)


def words(answer, offset, *, queue=0, start=0, retry=0):
    """What the Java client puts into POP_CK (ExtraInfoUtil.buildExtraInfo)."""
    found = answer.fields
    return f"{start} {found['popTime']} {found['invisibleTime']} {found['reviveQid']} {retry} broker-a {queue} {offset}"


def ack(client, topic, answer, offset, *, group="GPop", start=0, retry=0):
    return client.call(
        200051,
        consumerGroup=group,
        topic=topic,
        queueId=0,
        offset=offset,
        extraInfo=words(answer, offset, start=start, retry=retry),
    )


def fill(client, topic, number=3):
    for one in range(number):
        assert client.put(topic, b"p%d" % one, properties={"KEYS": f"k{one}"}).code == 0
    until(lambda: client.call(30, topic=topic, queueId=0).fields["offset"] == str(number))


def pop_until(client, topic, expected, **how):
    """What comes, answer by answer, until there are so many messages; each is acknowledged."""
    found: list[tuple[dict, bytes]] = []
    while len(found) < expected:
        answer = pop(client, topic, poll=20_000, **how)
        assert answer.code == 0, answer.remark
        for facts, body in records(answer):
            given = facts["properties"].get("POP_CK") or words(answer, facts["queue_offset"])
            retry = given.split(" ")[4] != "0"
            where = f"%RETRY%{how['group']}_{topic}" if retry else topic
            assert (
                client.call(
                    200051,
                    consumerGroup=how["group"],
                    topic=where,
                    queueId=0,
                    extraInfo=given,
                    offset=facts["queue_offset"],
                ).code
                == 0
            )
            found.append((facts, body))
    return found


def test_what_was_popped_is_invisible(client, topic):
    fill(client, topic)
    answer = pop(client, topic)
    assert sorted(bodies(answer)) == [b"p0", b"p1", b"p2"]
    assert (answer.fields["startOffsetInfo"], answer.fields["msgOffsetInfo"]) == ("0 0 0", "0 0 0,1,2")
    assert pop(client, topic).code == 210


@pytest.mark.slow
def test_only_what_is_not_acknowledged_comes_again(client, topic):
    fill(client, topic)
    answer = pop(client, topic, invisible=1500, group="GSome")
    for offset in (2, 0):
        assert ack(client, topic, answer, offset, group="GSome").code == 0
    ((facts, body),) = pop_until(client, topic, 1, group="GSome")
    assert (body, facts["reconsume_times"], facts["topic"]) == (b"p1", 1, topic)
    assert facts["properties"]["1ST_POP_TIME"] == answer.fields["popTime"]
    assert facts["properties"]["ORIGIN_GROUP"] == "GSome"
    assert facts["properties"]["KEYS"] == "k1"


@pytest.mark.slow
def test_what_comes_again_and_is_not_acknowledged_comes_a_third_time(client, topic):
    fill(client, topic, 1)
    pop(client, topic, invisible=100, group="GThird")
    answer = pop(client, topic, invisible=100, group="GThird", poll=20_000)
    assert answer.fields["startOffsetInfo"] == "1 0 0"
    ((facts, _),) = pop_until(client, topic, 1, group="GThird")
    assert facts["reconsume_times"] == 2


@pytest.mark.slow
def test_many_are_acknowledged_at_once(client, topic):
    fill(client, topic)
    answer = pop(client, topic, invisible=1500, group="GMany")
    found = answer.fields
    one = {
        "b": base64.b64encode(bytes([0b101])).decode(),
        "c": "GMany",
        "t": topic,
        "r": "0",
        "so": 0,
        "q": 0,
        "rq": int(found["reviveQid"]),
        "pt": int(found["popTime"]),
        "it": 1500,
    }
    assert client.call(200151, json.dumps({"brokerName": "broker-a", "acks": [one]}).encode()).code == 0
    assert [body for _, body in pop_until(client, topic, 1, group="GMany")] == [b"p1"]


@pytest.mark.slow
def test_the_time_until_a_message_comes_again_can_be_put_off_and_brought_forward(client, topic):
    fill(client, topic, 2)
    answer = pop(client, topic, invisible=60_000, group="GChange")
    began = time.time()
    for offset, invisible in ((0, 4000), (1, 1000)):
        changed = client.call(
            200053,
            consumerGroup="GChange",
            topic=topic,
            queueId=0,
            offset=offset,
            extraInfo=words(answer, offset),
            invisibleTime=invisible,
        )
        assert (changed.code, changed.fields["invisibleTime"]) == (0, str(invisible))
    found = pop_until(client, topic, 2, group="GChange")
    assert [body for _, body in found] == [b"p1", b"p0"]
    assert time.time() - began >= 4


@pytest.mark.slow
def test_a_check_point_and_its_acknowledgements_lie_in_the_revive_topic(client, topic):
    fill(client, topic)
    answer = pop(client, topic, invisible=1500, group="GWritten")
    assert ack(client, topic, answer, 1, group="GWritten").code == 0
    queue = int(answer.fields["reviveQid"])

    def tags():
        return [
            (facts["properties"]["TAGS"], json.loads(body))
            for facts, body in records(client.pull(REVIVE, queue))
            if json.loads(body)["c"] == "GWritten"
        ]

    until(lambda: len(tags()) == 2)
    common = {"bn": "broker-a", "c": "GWritten", "pt": int(answer.fields["popTime"]), "q": 0, "so": 0, "t": topic}
    assert tags() == [
        ("ck", common | {"bm": 0, "d": [0, 1, 2], "it": 1500, "n": 3, "ro": 0, "sp": False}),
        ("ack", common | {"ao": 1}),
    ]


def pipelined(address, commands):
    """Codes of requests that are all sent before the first answer is read."""

    async def main():
        connection = await Connection.open(address)
        found = await asyncio.gather(*(connection.call(one, 20) for one in commands))
        connection.close()
        return [one.code for one in found]

    return asyncio.run(main())


def acknowledging(topic, answer, offset, group):
    fields = {"consumerGroup": group, "topic": topic, "queueId": "0", "offset": str(offset)}
    return Command(200051, fields=fields | {"extraInfo": words(answer, offset)})


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_acknowledgements_that_arrive_together_are_stored_together_and_all_count(mode):
    with MqServer(flushDiskType=mode) as server, Client(server.broker_address) as client:
        server.create_topic("Together", queues=1)
        fill(client, "Together", 200)
        first = pop(client, "Together", invisible=3000, group="GTogether", count=32)
        second = pop(client, "Together", invisible=3000, group="GTogether", count=32)
        commands = [acknowledging("Together", first, offset, "GTogether") for offset in (*range(31), 5, 6)]
        bad = acknowledging("Together", first, 31, "GTogether")
        words_ = bad.fields["extraInfo"].split(" ")
        bad.fields["extraInfo"] = " ".join([*words_[:3], "77", *words_[4:]])  # no such revive queue
        more = acknowledging("Together", second, 32, "GTogether")
        more.fields["extraInfo"] = words(second, 32, start=32)
        codes = pipelined(server.broker_address, [*commands, bad, more])
        assert codes == [0] * 33 + [1, 0]

        def acks():
            found = []
            for queue in range(8):
                for facts, body in records(client.pull(REVIVE, queue)):
                    if facts["properties"]["TAGS"] in ("ack", "bAck"):
                        found.append((facts["properties"]["TAGS"], json.loads(body)))
            return found

        until(lambda: sum(len(one.get("aol", [0])) for _, one in acks()) >= 32)
        stored = [one.get("aol", [one["ao"]]) for _, one in acks()]
        assert sorted(offset for one in stored for offset in one) == [*range(31), 32]
        assert len(stored) < 16  # in one or a few pieces, as they arrived


def test_only_a_client_that_does_not_wait_for_answers_is_made_to_wait(monkeypatch):
    """Acknowledgements sent one after another are stored at once; those of a client that sends on are gathered."""
    gathering = 1.0
    monkeypatch.setattr("mqtool.server.broker.pop.acks.GATHER_S", gathering)
    with MqServer() as server, Client(server.broker_address) as client:
        server.create_topic("Pace", queues=1)
        fill(client, "Pace", 20)
        answer = pop(client, "Pace", group="GPace", count=20)

        def acknowledge(*offsets):
            """Sends acknowledgements in one write; returns the seconds until all are answered."""
            frames = []
            for offset in offsets:
                command = acknowledging("Pace", answer, offset, "GPace")
                command.opaque = offset
                frames += encode(command)
            began = time.monotonic()
            client.socket.sendall(b"".join(frames))
            assert [client.receive().code for _ in offsets] == [0] * len(offsets)
            return time.monotonic() - began

        assert max(acknowledge(offset) for offset in range(5)) < gathering
        assert acknowledge(5, 6) < gathering
        assert acknowledge(7) > 0.9 * gathering  # it sent several at once: more may come; timers end a little early
        assert acknowledge(8) < gathering  # none came


def test_in_order_a_queue_is_blocked_until_everything_is_acknowledged(client, topic):
    fill(client, topic)
    how = {"order": True, "group": "GOrder", "queue": 0}
    answer = pop(client, topic, count=2, **how)
    assert (bodies(answer), answer.fields["reviveQid"]) == ([b"p0", b"p1"], "999")
    assert pop(client, topic, **how).code == 210
    assert ack(client, topic, answer, 0, group="GOrder").code == 0
    assert pop(client, topic, **how).code == 210
    held = client.send(
        200050,
        consumerGroup="GOrder",
        topic=topic,
        queueId=0,
        maxMsgNums=8,
        invisibleTime=60000,
        order=True,
        pollTime=20_000,
        bornTime=0,
        initMode=0,
    )
    assert ack(client, topic, answer, 1, group="GOrder").code == 0
    assert bodies(client.answer(held)) == [b"p2"]


def acks(client, *entries):
    return client.call(200151, json.dumps({"brokerName": "broker-a", "acks": entries}).encode())


def test_in_order_many_are_acknowledged_at_once(client, topic):
    fill(client, topic)
    how = {"order": True, "group": "GOrderMany", "queue": 0}
    answer = pop(client, topic, count=2, **how)
    entry = {
        "b": base64.b64encode(bytes([0b11])).decode(),
        "c": "GOrderMany",
        "t": topic,
        "r": "0",
        "so": 0,
        "q": 0,
        "rq": 999,
        "pt": int(answer.fields["popTime"]),
        "it": 60_000,
    }
    assert acks(client, entry).code == 0
    assert bodies(pop(client, topic, **how)) == [b"p2"]


@pytest.mark.parametrize("changed", [{"b": "A"}, {"so": "x"}, {"pt": None}, {"q": 1 << 40}, {"rq": 1.5}])
def test_what_is_no_list_of_acknowledgements_is_refused(client, topic, changed):
    entry = {"b": "AQ==", "c": "G", "t": topic, "r": "0", "so": 0, "q": 0, "rq": 0, "pt": 1, "it": 1}
    answer = acks(client, entry | changed)
    assert answer.code == 1
    assert answer.remark.startswith("body is not a list of acknowledgements")


def test_in_order_what_is_not_acknowledged_comes_again_from_its_queue_and_counts(client, topic):
    fill(client, topic)
    how = {"order": True, "group": "GOrder2", "queue": 0}
    answer = pop(client, topic, count=2, invisible=300, **how)
    assert answer.fields["orderCountInfo"] == "0 0 0"
    assert ack(client, topic, answer, 0, group="GOrder2").code == 0
    answer = pop(client, topic, count=2, poll=20_000, **how)
    assert bodies(answer) == [b"p1", b"p2"]
    assert answer.fields["orderCountInfo"] == "0 qo0%1 1;0 0 0"
    assert ack(client, topic, answer, 5, group="GOrder2").code == 208
    assert pop(client, topic, attemptId="again", **how).code == 210


def test_one_attempt_in_order_may_take_the_same_messages_again(client, topic):
    fill(client, topic)
    how = {"order": True, "group": "GOrder3", "queue": 0, "attemptId": "a-1"}
    assert bodies(pop(client, topic, **how)) == bodies(pop(client, topic, **how)) == [b"p0", b"p1", b"p2"]


@pytest.mark.slow
@pytest.mark.parametrize("order", [False, True], ids=["any order", "in order"])
def test_what_is_out_when_the_broker_stops_comes_again_afterwards(tmp_path, order):
    group = "GStop"
    with MqServer(tmp_path / "store") as server:
        with Client(server.broker_address) as client:
            client.heartbeat("c@1", consumers={group: ["Stop"]})
            fill(client, "Stop")
            answer = pop(client, "Stop", invisible=2500, group=group, order=order, queue=0)
            assert len(bodies(answer)) == 3
            assert ack(client, "Stop", answer, 0, group=group).code == 0
        server.restart()
        with Client(server.broker_address) as client:
            client.heartbeat("c@1", consumers={group: ["Stop"]})
            again = pop(client, "Stop", invisible=60_000, group=group, order=order, queue=0, poll=20_000)
            assert time.time() * 1000 >= int(answer.fields["popTime"]) + 2500
            found = bodies(again)
            while len(found) < 2:
                found += bodies(pop(client, "Stop", group=group, order=order, queue=0, poll=20_000))
            assert found == [b"p1", b"p2"]


def test_what_is_wrong_with_a_request_is_said_as_the_real_broker_does(client, topic):
    faq = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
    host = "the broker[127.0.0.1]"
    fill(client, topic)
    answer = pop(client, topic)
    said = [
        pop(client, topic, count=33),
        pop(client, "NoSuchTopic"),
        pop(client, topic, queue=9),
        ack(client, topic, answer, 9),
        ack(client, "NoSuchTopic", answer, 0),
    ]
    assert [(one.code, (one.remark or "").rpartition(" consumer:")[0] or one.remark) for one in said] == [
        (29, f"{host} pop message's num is greater than 32"),
        (17, f"topic[NoSuchTopic] not exist, apply first please! {faq}"),
        (29, f"queueId[9] is illegal, topic:[{topic}] topicConfig.readQueueNums:[4]"),
        (208, f"offset is illegal, key:{topic}@0, commit:9, store:0~3"),
        (17, f"topic[NoSuchTopic] not exist, apply first please! {faq}"),
    ]
    assert client.call(200151, b"").code == 208
    assert client.call(200051, consumerGroup="GPop", topic=topic, queueId=0, offset=0, extraInfo="0 1").code == 1


@pytest.mark.parametrize("name", ["orders-5.5.0", "orders-4.9.7"])
def test_a_store_that_is_only_read_is_popped_to_its_end_and_stays_as_it_is(tmp_path, name):
    store = copy_store(name, tmp_path)
    row = max(answers(name, "queues"), key=lambda row: (row["topic"] == "Orders") * row["maxOffset"])
    before = tree_digest(store)

    def consume(address):
        found = []
        with Client(address) as client:
            while len(found) < row["maxOffset"] - row["minOffset"]:
                answer = pop(client, "Orders", queue=row["queueId"], count=32)
                assert answer.code == 0, answer.remark
                for facts, _ in records(answer):
                    given = words(answer, facts["queue_offset"], queue=row["queueId"], start=facts["queue_offset"])
                    assert (
                        client.call(
                            200051,
                            consumerGroup="GPop",
                            topic="Orders",
                            queueId=row["queueId"],
                            extraInfo=given,
                            offset=facts["queue_offset"],
                        ).code
                        == 0
                    )
                    found.append(facts["physical_offset"])
            assert pop(client, "Orders", queue=row["queueId"]).code == 210
        return found

    async def main():
        async with Server(ServeOptions(store, read_only=True)) as server:
            return await asyncio.to_thread(consume, server.addresses["broker"])

    assert asyncio.run(main()) == [physical_offset for _, physical_offset, *_ in row["units"]]
    assert tree_digest(store) == before


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_many_consumers_at_once_get_each_message_until_it_is_acknowledged(mode):
    count, consumers = 200, 4
    acknowledged: list[bytes] = []
    left: list[bytes] = []

    def consume(address, seed):
        random_ = random.Random(seed)
        with Client(address) as client:
            while len(set(acknowledged)) < count:
                answer = pop(client, "Many", invisible=1500, poll=500, group="GCrowd", count=random_.randrange(1, 9))
                for facts, body in records(answer):
                    if "POP_CK" not in facts["properties"] and random_.random() < 0.2:
                        left.append(body)
                        continue
                    starts = {
                        tuple(map(int, one.split()[:2])): one.split()[2]
                        for one in answer.fields["startOffsetInfo"].split(";")
                    }
                    given = facts["properties"].get("POP_CK") or words(
                        answer, facts["queue_offset"], queue=facts["queue"], start=starts[0, facts["queue"]]
                    )
                    topic = "Many" if given.split(" ")[4] == "0" else "%RETRY%GCrowd_Many"
                    assert (
                        client.call(
                            200051,
                            consumerGroup="GCrowd",
                            topic=topic,
                            queueId=facts["queue"],
                            extraInfo=given,
                            offset=facts["queue_offset"],
                        ).code
                        == 0
                    )
                    acknowledged.append(body)

    with MqServer(flushDiskType=mode) as server, Client(server.broker_address) as client:
        for number in range(count):
            assert client.put("Many", b"m%d" % number, number % 4).code == 0
        with ThreadPoolExecutor(consumers) as pool:
            for one in [pool.submit(consume, server.broker_address, seed) for seed in range(consumers)]:
                one.result(60)
    assert set(acknowledged) == {b"m%d" % number for number in range(count)}
    assert 10 < len(left) < count
    assert len(set(left)) == len(left)


def acknowledged_by(client, group):
    """Queue offsets in acknowledgements, which wait in the timer topic until their messages would come again."""
    found = records(client.pull("rmq_sys_wheel_timer"))
    own = [json.loads(body) for facts, body in found if facts["properties"]["TAGS"] in ("ack", "bAck")]
    return sorted(offset for one in own if one["c"] == group for offset in one.get("aol") or [one["ao"]])


def test_acknowledgements_of_many_check_points_are_stored_however_few_are_gathered(monkeypatch):
    monkeypatch.setattr("mqtool.server.broker.pop.acks.MAX_GATHERED", 2)
    monkeypatch.setattr("mqtool.server.broker.pop.acks.MAX_BUSY", 1)
    commands = []
    with MqServer() as server, Client(server.broker_address) as client:
        server.create_topic("Few", queues=1)
        fill(client, "Few", 15)
        for start in (0, 5, 10):
            answer = pop(client, "Few", group="GFew", count=5)
            for offset in range(start, start + 5):
                command = acknowledging("Few", answer, offset, "GFew")
                command.fields["extraInfo"] = words(answer, offset, start=start)
                commands.append(command)
        assert pipelined(server.broker_address, commands) == [0] * 15
        until(lambda: acknowledged_by(client, "GFew") == list(range(15)))


def test_with_synchronous_flushes_batches_are_sent_and_acknowledged(tmp_path):
    with MqServer(flushDiskType="SYNC_FLUSH") as server, Client(server.broker_address) as client:
        server.create_topic("Sync", queues=1)
        sent = client.put("Sync", batch_of(b"a", b"b"), code=320, m=True)
        assert (sent.code, sent.fields["queueOffset"]) == (0, "0")
        until(lambda: client.call(30, topic="Sync", queueId=0).fields["offset"] == "2")
        answer = pop(client, "Sync", group="GSync")
        found = answer.fields
        entry = {"b": "Aw==", "c": "GSync", "t": "Sync", "r": "0", "so": 0, "q": 0, "it": int(found["invisibleTime"])}
        assert acks(client, {**entry, "rq": int(found["reviveQid"]), "pt": int(found["popTime"])}).code == 0
        until(lambda: acknowledged_by(client, "GSync") == [0, 1])


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {"1 0 0"}),
        ({"enableRetryTopicV2": "true"}, {"2 0 0", "1 0 0"}),
        ({"enableRetryTopicV2": "true", "retrieveMessageFromPopRetryTopicV1": "false"}, {"2 0 0"}),
    ],
    ids=["first", "both", "second"],
)
def test_a_pop_reads_the_retry_topics_of_the_configuration(settings, expected):
    with MqServer(**settings) as server, Client(server.broker_address) as client:
        client.create_topic("T", 1)
        client.heartbeat("c@1", consumers={"G": ["T"]})
        for name in ("%RETRY%G_T", "%RETRY%G+T"):
            server.call(lambda name=name: server.broker.topics.create_for_send_back(name, 1))
            assert client.put(name, b"again").code == 0
        until(lambda: client.call(30, topic="%RETRY%G+T", queueId=0).fields["offset"] == "1")
        peeked = client.call(200052, consumerGroup="G", topic="T", queueId=-1, maxMsgNums=8)
        assert len(bodies(peeked)) == len(expected)
        asked = {"consumerGroup": "G", "topic": "T", "queueId": -1, "pollTime": 0, "bornTime": 0}
        assert client.call(200054, **asked).fields["hasMsg"] == "true"
        answer = pop(client, "T", group="G")
        assert set(answer.fields["startOffsetInfo"].split(";")) == expected
        assert [facts["topic"] for facts, _ in records(answer)] == ["T"] * len(expected)
        assert client.call(200054, **asked).fields["hasMsg"] == "false"


@pytest.mark.slow
def test_what_is_not_acknowledged_is_put_into_the_retry_topic_of_the_configuration():
    with MqServer(enableRetryTopicV2="true") as server, Client(server.broker_address) as client:
        fill(client, "T", 1)
        assert pop(client, "T", invisible=100, group="G").fields["startOffsetInfo"] == "0 0 0"
        answer = pop(client, "T", group="G", poll=20_000)
        assert answer.fields["startOffsetInfo"] == "2 0 0"
        ((facts, _),) = records(answer)
        done = {"topic": "%RETRY%G+T", "queueId": 0, "offset": facts["queue_offset"]}
        extra = facts["properties"]["POP_CK"]
        assert client.call(200051, consumerGroup="G", extraInfo=extra, **done).code == 0
        assert client.call(30, topic="%RETRY%G_T", queueId=0).fields["offset"] == "0"
