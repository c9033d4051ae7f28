"""A replay into the real broker: what lies in its store afterwards is what the source's consumers were given."""

from pathlib import Path

import pytest

import mqtool
from mqtool.replay.originals import Kind, Resend, Source
from mqtool.replay.to_broker import SendRequest, replay_to
from mqtool.server.producer import BrokerSender
from mqtool.store.log.selection import Selection
from tests.support.replayed import expected_queues, queues_of
from tests.support.stores import answers, store_fixture

pytestmark = pytest.mark.interop

NAME = "orders-5.5.0"


@pytest.mark.night
def test_the_real_broker_stores_what_is_sent_again_and_its_refusals_are_reported_in_its_words(rocketmq, tmp_path):
    broker = rocketmq("5.5.0").start_broker(tmp_path / "real", autoCreateTopicEnable=True)
    source = Source(Path(store_fixture(NAME).directory), Selection())
    (tmp_path / "lines").write_text(f'{{"topic":"T","body":"{"x" * 5_000_000}"}}\n{{"topic":"T","body":"fits"}}\n')
    with BrokerSender(broker.name_server) as sender:
        report = replay_to(SendRequest(source, broker.name_server), sender)
        other = replay_to(SendRequest(Source(tmp_path / "lines", Selection()), broker.name_server), sender)
    broker.stop()
    expected, found = expected_queues(NAME), queues_of(broker.store)
    assert [body for *_, body in found.pop(("T", 0))] == [b"fits"]
    assert found == expected
    assert (report.replayed, report.refused) == (sum(map(len, expected.values())), 0)
    assert (other.replayed, [position for position, _ in other.reasons]) == (1, [1])
    assert other.reasons[0][1].startswith("MESSAGE_ILLEGAL: the message is illegal")


def test_the_real_broker_takes_dead_letters_and_given_up_transactions_as_ordinary_messages(rocketmq, tmp_path):
    broker = rocketmq("5.5.0").start_broker(tmp_path / "real", autoCreateTopicEnable=True)
    root = Path(store_fixture("lives-5.5.0").directory)
    with BrokerSender(broker.name_server) as sender:
        for resend in (Resend(Kind.DEAD_LETTERS, "LivesGroup"), Resend(Kind.HALF)):
            report = replay_to(SendRequest(Source(root, Selection(), resend=resend), broker.name_server), sender)
            assert (report.refused, report.reasons) == (0, [])
    broker.stop(kill=True)  # a proper stop takes ten seconds
    found = {topic: set() for topic in ("LivesRetry", "LivesTx")}
    with mqtool.open(broker.store) as store:
        for message in store.messages(topics=[*found, "RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX"]):
            assert store.queue(message.topic, message.queue_id).names(message.queue_offset, message.physical_offset)
            found[message.topic].add(message.unique_key)
    sent = [row for row in answers("lives-5.5.0", "lives") if row["event"] == "sent"]
    kinds = {topic: ("dead-",) if topic == "LivesRetry" else ("txgivenup-", "txopen-") for topic in found}
    assert found == {topic: {row["msgId"] for row in sent if row["life"].startswith(kinds[topic])} for topic in found}
