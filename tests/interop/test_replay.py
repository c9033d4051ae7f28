"""A replay into the real broker: what lies in its store afterwards is what the source's consumers were given."""

from pathlib import Path

import pytest

from mqtool.replay.originals import Source
from mqtool.replay.to_broker import SendRequest, replay_to
from mqtool.server.producer.sender import BrokerSender
from mqtool.store.selection import Selection
from tests.support.replayed import expected_queues, queues_of
from tests.support.stores import store_fixture

pytestmark = pytest.mark.interop

NAME = "orders-5.5.0"


@pytest.mark.night
def test_the_real_broker_stores_what_is_sent_again_and_its_refusals_are_told_in_its_words(rocketmq, tmp_path):
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
