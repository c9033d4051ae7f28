"""A replay into a running broker: what it stores, in which queues, and what becomes of refusals and deaths."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from mqtool.engine.write.messages import OutgoingMessage
from mqtool.errors import RemoteProtocolError, UsageError
from mqtool.ingest.bulk_ingest import Ack
from mqtool.protocol import Command, RequestCode
from mqtool.replay import to_broker
from mqtool.replay.originals import Source
from mqtool.replay.to_broker import SendRequest, replay_to
from mqtool.replay.to_store import ReplayRequest, Report, replay
from mqtool.server.broker.send.send_message import SendProcessor
from mqtool.server.producer import BrokerSender, Destination, Route, route_in
from mqtool.server.testing import MqServer
from mqtool.store.log.selection import Selection
from tests.support.remoting import Client
from tests.support.replayed import expected_queues, queues_of
from tests.support.stores import store_fixture
from tests.unit.server.test_broker_positions import answering as server_answering

NAME = "orders-5.5.0"
STORE = Path(store_fixture(NAME).directory)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[MqServer]:
    with MqServer(tmp_path / "served") as started:
        yield started


def sent(source: Path, server: MqServer, wanted: Selection | None = None, **options: Any) -> Report:
    with BrokerSender(server.namesrv) as sender:
        return replay_to(SendRequest(Source(source, wanted or Selection()), server.namesrv, **options), sender)


def lines(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def make_topic(server: MqServer, topic: str, queues: int, perm: int = 6) -> None:
    with Client(server.broker_address) as client:
        answer = client.call(
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            topic=topic,
            defaultTopic="TBW102",
            readQueueNums=queues,
            writeQueueNums=queues,
            perm=perm,
            topicFilterType="SINGLE_TAG",
            topicSysFlag=0,
            order="false",
        )
        assert answer.code == 0


def test_queues_hold_the_messages_in_their_order_with_keys_tags_and_properties(server):
    report = sent(STORE, server)
    server.stop()
    expected = expected_queues(NAME)
    assert queues_of(server.store) == expected
    assert (report.replayed, report.refused) == (sum(map(len, expected.values())), 0)


def test_the_map_of_ids_says_where_each_message_is_now(server, tmp_path):
    sent(STORE, server, Selection(topics=("Keyed",)), ids=tmp_path / "ids")
    found = [json.loads(line) for line in (tmp_path / "ids").read_text().splitlines()]
    assert len(found) == sum(len(rows) for (topic, _), rows in expected_queues(NAME).items() if topic == "Keyed")
    with Client(server.broker_address) as client:
        for line in found:
            new = line["new"]
            answer = client.call(RequestCode.VIEW_MESSAGE_BY_ID, offset=new["physical_offset"])
            assert line["unique_key"].encode() in bytes(answer.body)
            assert (new["queue_id"], new["offset_message_id"][-16:]) == (
                line["old"]["queue_id"],
                f"{new['physical_offset']:016X}",
            )


def test_queues_that_a_topic_lacks_are_dealt_to_those_it_has(server, tmp_path):
    make_topic(server, "Narrow", 2)
    rows = [{"topic": "Narrow", "queue_id": number % 5, "body": f"{number}"} for number in range(15)]
    sent(lines(tmp_path / "lines", *rows), server)
    server.stop()
    found = {queue: [body for *_, body in rows] for (_, queue), rows in queues_of(server.store).items()}
    # Rows of original queue 4, say, lie in queue 0 in their order; so do those of 0 and 2.
    assert {queue: sorted(map(int, bodies)) for queue, bodies in found.items()} == {
        wanted: [number for number in range(15) if number % 5 % 2 == wanted] for wanted in (0, 1)
    }
    for queue, bodies in found.items():
        assert [int(body) for body in bodies] == sorted(int(body) for body in bodies), queue


def test_brokers_share_the_queues_that_both_have():
    route = Route((("a:1", 4), ("b:1", 2)))
    found = [route.destination(queue) for queue in range(7)]
    assert found[:4] == [Destination("a:1", 0), Destination("b:1", 1), Destination("a:1", 2), Destination("a:1", 3)]
    assert found[4:] == [Destination("b:1", 0), Destination("b:1", 1), Destination("a:1", 0)]


class Dying:
    """A sender whose run ends behind some messages, of which the last answers are lost."""

    def __init__(self, sender: BrokerSender, calls: int) -> None:
        self._sender, self._calls = sender, calls

    def send(self, messages: Sequence[OutgoingMessage]) -> tuple[list[Ack], Exception | None]:
        answers, failure = self._sender.send(messages)
        self._calls -= 1
        return (answers, failure) if self._calls else (answers[:3], ConnectionError("went down"))


@pytest.mark.slow
def test_after_a_death_each_message_is_there_at_least_once_and_listed_once(server, tmp_path, monkeypatch):
    monkeypatch.setattr(to_broker, "CHUNK", 10)
    files = {"ids": tmp_path / "ids", "state": tmp_path / "state"}
    with BrokerSender(server.namesrv) as sender, pytest.raises(ConnectionError, match="went down"):
        replay_to(SendRequest(Source(STORE, Selection()), server.namesrv, **files), Dying(sender, 5))
    sent(STORE, server, **files)
    server.stop()
    expected = Counter(row for rows in expected_queues(NAME).values() for row in rows)
    found = Counter(row for rows in queues_of(server.store).values() for row in rows)
    assert found.keys() == expected.keys()
    assert sum((found - expected).values()) == 7  # the chunk whose answers were lost, but for three
    assert len((tmp_path / "ids").read_text().splitlines()) == expected.total()


def test_refused_messages_are_listed_with_the_words_of_who_refused(server, tmp_path):
    make_topic(server, "ReadOnly", 2, perm=4)
    rows = [
        {"topic": "Fits", "body": "x"},
        {"topic": "ReadOnly", "body": "x"},
        {"topic": "Bad topic", "body": "x"},
        {"topic": "Fits", "body": "x" * 5_000_000},
        {"topic": "Fits", "body": "x" * 20_000_000},
        {"topic": "Fits", "body": "y"},
    ]
    report = sent(lines(tmp_path / "lines", *rows), server)
    assert (report.replayed, report.refused, dict(report.topics)) == (2, 4, {"Fits": 2})
    assert [position for position, _ in report.reasons] == [2, 3, 4, 5]
    for (_, reason), words in zip(
        report.reasons,
        ["perm 4, 2 queues to write", "INVALID_PARAMETER: ", "MESSAGE_ILLEGAL: ", "exceeds the frame limit"],
        strict=True,
    ):
        assert words in reason


def test_what_an_earlier_run_could_not_send_is_reported_by_the_next_one(server, tmp_path):
    rows = [{"topic": "Bad topic", "body": "x"}, *({"topic": "Fits", "body": str(n)} for n in range(4))]
    path, state = lines(tmp_path / "lines", *rows), tmp_path / "state"
    first = sent(path, server, Selection(limit=3), state=state)
    assert (first.replayed, first.refused, first.is_complete) == (2, 1, False)
    rest = sent(path, server, state=state)
    assert rest.earlier is not None
    assert (rest.replayed, rest.refused, rest.earlier.refused, rest.is_complete) == (2, 0, 1, False)


def test_without_auto_create_a_topic_has_no_route(tmp_path):
    with MqServer(autoCreateTopicEnable="false") as server:
        report = sent(lines(tmp_path / "lines", {"topic": "Nowhere", "body": "x"}), server)
    assert report.refused == 1
    assert report.reasons[0][1].startswith("TOPIC_NOT_EXIST: No topic route info in name server for the topic: Nowhere")


def answering(monkeypatch: pytest.MonkeyPatch, *codes: int) -> None:
    """Has brokers answer so to the first sends."""
    answers, real = list(codes), SendProcessor.send

    def send(self: SendProcessor, command: Command, peer: Any) -> Any:
        return command.reply(answers.pop(0), "so it is") if answers else real(self, command, peer)

    monkeypatch.setattr(SendProcessor, "send", send)


def test_a_busy_broker_is_asked_again(monkeypatch, tmp_path):
    answering(monkeypatch, 2, 215)
    with MqServer() as server:
        assert sent(lines(tmp_path / "lines", {"topic": "T", "body": "x"}), server).replayed == 1


def test_a_broker_that_stays_busy_ends_the_replay(monkeypatch, tmp_path):
    monkeypatch.setattr("mqtool.server.producer.FIRST_PAUSE", 0)
    answering(monkeypatch, *[2] * 8)
    with MqServer() as server, pytest.raises(ConnectionError, match="SYSTEM_BUSY: so it is"):
        sent(lines(tmp_path / "lines", {"topic": "T", "body": "x"}), server)


def test_after_a_failure_nothing_is_sent_to_other_queues(monkeypatch):
    monkeypatch.setattr("mqtool.server.producer.QUEUES_AT_ONCE", 1)
    answering(monkeypatch, 14)
    with MqServer() as server, BrokerSender(server.namesrv) as sender:
        make_topic(server, "T", 2)
        answers, error = sender.send([OutgoingMessage("T", queue, b"x") for queue in (0, 0, 1)])
        stored = server.call(lambda: server.broker.messages.max_physical_offset)
    assert (answers, str(error).rpartition(": ")[2], stored) == ([], "so it is", 0)


def test_a_message_that_no_frame_can_hold_is_refused_and_the_next_one_sent(server):
    make_topic(server, "T", 1)
    with BrokerSender(server.namesrv) as sender:
        wide = b"k\x01" + b"\x03" * (3 << 20) + b"\x02"  # six bytes each in JSON
        answers, error = sender.send([OutgoingMessage("T", 0, b"x", wide), OutgoingMessage("T", 0, b"y")])
    assert error is None
    assert "header of" in answers[0].reason
    assert answers[1].physical_offset == 0


def test_a_broker_that_takes_no_message_at_all_ends_the_replay(monkeypatch, tmp_path):
    answering(monkeypatch, 14)
    with MqServer() as server, pytest.raises(ConnectionError, match="SERVICE_NOT_AVAILABLE: so it is"):
        sent(lines(tmp_path / "lines", {"topic": "T", "body": "x"}), server)


def test_an_answer_that_does_not_say_where_a_message_is_ends_the_replay(monkeypatch, tmp_path):
    answering(monkeypatch, 0)
    with MqServer() as server, pytest.raises(RemoteProtocolError, match="answer to a send: "):
        sent(lines(tmp_path / "lines", {"topic": "T", "body": "x"}), server)


@pytest.mark.parametrize(
    "body",
    [
        b'{"queueDatas":[1]}',
        b'{"queueDatas":[{"brokerName":"a","perm":"six","writeQueueNums":4}]}',
        b'{"brokerDatas":[{"brokerName":"a"}]}',
        b'{"brokerDatas":[{"brokerName":"a","brokerAddrs":["10.0.0.1:10911"]}]}',
    ],
)
def test_a_route_that_is_none_is_an_error_of_the_name_server(body):
    with pytest.raises(RemoteProtocolError, match="route of a topic: "):
        route_in(body)


def test_a_dry_run_sends_nothing(server):
    report = sent(STORE, server, dry_run=True)
    server.stop()
    assert report.replayed == sum(map(len, expected_queues(NAME).values()))
    assert queues_of(server.store) == {}


def test_a_dry_run_names_lines_that_are_no_messages(server, tmp_path):
    (tmp_path / "lines").write_text('{"topic": "T", "body": "x"}\nnot json\n')
    report = sent(tmp_path / "lines", server, dry_run=True)
    assert (report.replayed, report.refused, [position for position, _ in report.reasons]) == (1, 1, [2])


def test_born_times_are_kept_where_that_is_asked_for(server, tmp_path):
    path = lines(tmp_path / "lines", {"topic": "T", "body": "x", "born_timestamp": 1_700_000_000_000})
    with BrokerSender(server.namesrv) as sender:
        replay_to(SendRequest(Source(path, Selection(), keep_times=True), server.namesrv), sender)
    with Client(server.broker_address) as client:
        assert (1_700_000_000_000).to_bytes(8) in bytes(client.call(RequestCode.VIEW_MESSAGE_BY_ID, offset=0).body)


def test_a_state_belongs_to_a_store_or_to_a_name_server(server, tmp_path):
    path = lines(tmp_path / "lines", {"topic": "T", "body": "x"})
    sent(path, server, state=tmp_path / "sent")
    with pytest.raises(UsageError, match="name_server was"):
        replay(ReplayRequest(Source(path, Selection()), tmp_path / "new", state=tmp_path / "sent"))
    replay(ReplayRequest(Source(path, Selection()), tmp_path / "new", state=tmp_path / "stored"))
    with pytest.raises(UsageError, match="name_server was None"):
        sent(path, server, state=tmp_path / "stored")


@pytest.mark.parametrize(("code", "words"), [(1, "SYSTEM_ERROR: no"), (None, "no answer")], ids=["refusal", "silence"])
def test_a_name_server_that_refuses_or_does_not_answer_is_an_error_and_no_message_is_sent(monkeypatch, code, words):
    monkeypatch.setattr("mqtool.server.producer.ANSWER_SECONDS", 0.05)
    with server_answering(code, remark="no") as name_server, BrokerSender(name_server.address) as sender:
        answers, error = sender.send([OutgoingMessage("T", 0, b"x")])
    assert answers == []
    assert isinstance(error, ConnectionError)
    assert words in str(error)
