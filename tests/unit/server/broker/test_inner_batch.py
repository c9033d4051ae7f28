"""Batches to a topic with BatchConsumeQueues stay together in one record, as 5.5.0 stores them."""

import mqtool
from mqtool.formats import message_batch
from mqtool.server.testing import MqServer
from mqtool.verify.store import verify
from tests.support.remoting import Client, records
from tests.unit.server.broker.conftest import until

INNER_BITS = 0x40 | 0x80


def batch(count):
    made = (message_batch.make(b"m%d" % number, b"TAGS\x01a\x02", 0) for number in range(count))
    return b"".join(message_batch.build(one) for one in made)


def test_an_empty_queue_of_batches_begins_at_minus_one(tmp_path):
    """BatchConsumeQueue.getMinOffsetInQueue (5.5.0) is -1 up to the first unit; ConsumeQueue's is 0."""
    with MqServer(tmp_path / "store") as server, Client(server.broker_address) as client:
        client.create_topic("Inner", attributes="+queue.type=BatchCQ")
        client.create_topic("Plain")
        bounds = {
            topic: [client.call(code, topic=topic, queueId=0).fields["offset"] for code in (31, 30)]
            for topic in ("Inner", "Plain")
        }
        assert bounds == {"Inner": ["-1", "0"], "Plain": ["0", "0"]}
        assert client.pull("Inner").fields["minOffset"] == "-1"
        client.put("Inner", batch(2), code=320, m=True)
        until(lambda: client.call(30, topic="Inner", queueId=0).fields["offset"] == "2")
        assert client.call(31, topic="Inner", queueId=0).fields["offset"] == "0"


def test_a_batch_is_one_record_of_several_offsets_and_survives_a_restart(tmp_path):
    store = tmp_path / "store"
    with MqServer(store) as server:
        with Client(server.broker_address) as client:
            made = client.create_topic("Inner", attributes="+queue.type=BatchCQ")
            assert made.code == 0, made.remark
            first = client.put("Inner", batch(5), code=320, m=True, properties={"UNIQ_KEY": "BATCHKEY"})
            assert (first.code, first.fields["batchUniqId"], first.fields["queueOffset"]) == (0, "BATCHKEY", "0")
            assert first.fields["transactionId"] == "BATCHKEY"
            second = client.put("Inner", batch(3), code=320, m=True, properties={"UNIQ_KEY": "OTHER"})
            assert second.fields["queueOffset"] == "5"
            until(lambda: client.call(30, topic="Inner", queueId=0).fields["offset"] == "8")
            ((facts, body), _) = records(client.pull("Inner"))
            assert (facts["sys_flag"] & INNER_BITS, facts["properties"]["INNER_NUM"], body) == (
                INNER_BITS,
                "5",
                batch(5),
            )
        server.restart()
        with Client(server.broker_address) as client:
            assert client.call(30, topic="Inner", queueId=0).fields["offset"] == "8"
            assert client.put("Inner", batch(2), code=320, m=True).fields["queueOffset"] == "8"
    with mqtool.open(store) as opened:
        assert [one for one in verify(opened).findings if one.severity != "note"] == []
