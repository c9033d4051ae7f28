"""What a test sees of its server without taking part: messages, offsets, requests; in Python and over HTTP."""

import asyncio
import json
import threading
import time
import urllib.error
import urllib.request

import pytest

from mqtool.protocol.rocketmq_v2 import definition as d
from mqtool.server.clock import ServerClock
from mqtool.server.serve import ServeOptions, Server
from mqtool.server.testing import MqServer
from tests.support.grpc_client import GrpcClient
from tests.support.remoting import Client
from tests.unit.server.broker.conftest import until


@pytest.fixture
def server():
    with MqServer() as found:
        yield found


def test_messages_are_decoded_and_no_offset_moves(server):
    server.create_group("G")
    with Client(server.broker_address) as client:
        client.put("Orders", b"paid", properties={"TAGS": "a", "KEYS": "k1 k2"})
        client.put("Other", b"x")
        client.put("Orders", b"sent", 1)
        first, second = server.messages("Orders")
        assert (first.body, first.tags, first.keys, first.queue_id) == (b"paid", "a", ("k1", "k2"), 0)
        assert (second.body, second.queue_id, second.queue_offset) == (b"sent", 1, 0)
        assert server.offsets("G") == {}
        client.call(15, consumerGroup="G", topic="Orders", queueId=1, commitOffset=1)
        server.messages("Orders")
        assert server.offsets("G") == {"Orders": {1: 1}}
        assert server.messages("None") == []


def test_a_wait_ends_with_the_last_message_or_says_what_is_missing(server):
    def send() -> None:
        with Client(server.broker_address) as client:
            for body in (b"1", b"2", b"3"):
                time.sleep(0.1)
                client.put("Orders", body)

    sending = threading.Thread(target=send)
    sending.start()
    assert [message.body for message in server.wait_for("Orders", count=3, timeout=20)] == [b"1", b"2", b"3"]
    sending.join()
    with pytest.raises(TimeoutError, match=r"Orders: expected 4 message\(s\) within 0.1 s, found 3"):
        server.wait_for("Orders", count=4, timeout=0.1)


@pytest.mark.parametrize("fast", [True, False])
def test_requests_are_listed_with_their_outcome(fast):
    with MqServer(fast_sends=fast) as server, Client(server.broker_address) as client:
        server.create_topic("Orders")
        client.put("Orders", group="Paying")
        client.pull("None", group="G")
        held = client.send_pull("Orders", 0, 1, group="G", hold_ms=20_000)
        until(lambda: len(server.requests()) == 3)
        host, port = client.socket.getsockname()
        sent, refused, waiting = server.requests()
        assert (sent.code, sent.topic, sent.group, sent.outcome) == ("SEND_MESSAGE_V2", "Orders", "Paying", "SUCCESS")
        assert (refused.code, refused.topic, refused.group) == ("PULL_MESSAGE", "None", "G")
        assert refused.outcome.startswith("TOPIC_NOT_EXIST: topic[None] not exist")
        assert (waiting.client, waiting.outcome) == (f"{host}:{port}", "")
        client.put("Orders")
        client.answer(held)
        assert server.requests()[2].outcome == "SUCCESS: FOUND"
        with GrpcClient(server.endpoints) as other:
            assert other.send("Orders", b"x").status.code == d.OK
            assert (server.requests()[-1].code, server.requests()[-1].topic) == ("SEND_MESSAGE_V2", "Orders")
            server.fail(send=2)
            assert client.put("Orders").code == 2
            other.send("Orders", b"x")
            both = [(request.code, request.topic, request.group, request.outcome) for request in server.requests()[-2:]]
            assert both == [
                ("SEND_MESSAGE_V2", "Orders", "P", "SYSTEM_BUSY: SYSTEM_BUSY, as a test asked"),
                ("SEND_MESSAGE_V2", "Orders", "", "TOO_MANY_REQUESTS: CODE: 2  DESC: SYSTEM_BUSY, as a test asked"),
            ]
        server.reset()
        assert server.requests() == []


def ask(address: str, path: str, method: str = "GET") -> object:
    with urllib.request.urlopen(urllib.request.Request(f"http://{address}{path}", method=method), timeout=30) as found:
        return json.load(found)


@pytest.mark.parametrize("temporary", [True, False])
def test_every_language_looks_and_resets_over_http(tmp_path, temporary):
    seed = tmp_path / "seed.jsonl"
    seed.write_text('{"topic":"Orders","body":"first"}\n')

    def use(addresses: dict[str, str]) -> None:
        admin = addresses["admin"]
        with Client(addresses["broker"]) as client, Client(addresses["namesrv"]) as names:
            client.put("Orders", b"paid \xff")
            rows = ask(admin, "/topics/Orders/messages")
            assert [(row["body"], row["body_encoding"]) for row in rows] == [("first", "text"), ("cGFpZCD/", "base64")]
            assert [request["code"] for request in ask(admin, "/requests")] == ["SEND_MESSAGE_V2"]
            client.call(25, b"", group="G", topic="Orders", queueId=0)
            assert ask(admin, "/groups/G/offsets") == {}
            assert rows[0]["store_host"] == addresses["broker"]
            assert ask(admin, "/faults?send=1&code=2", "POST") is None
            assert [fault["code"] for fault in ask(admin, "/faults")] == ["SYSTEM_BUSY"]
            with pytest.raises(urllib.error.HTTPError, match="404") as error:
                ask(admin, "/fault", "POST")
            assert error.value.read().startswith(b"expected one of /clock, ")
            ask(admin, "/faults", "DELETE")
            if not temporary:
                with pytest.raises(urllib.error.HTTPError, match="400") as error:
                    ask(admin, "/reset", "POST")
                assert error.value.read() == (
                    b"a reset deletes the store, so it needs a server that was started with --temporary\n"
                )
                return
            threads = [threading.Thread(target=ask, args=(admin, "/reset", "POST")) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert [row["body"] for row in ask(admin, "/topics/Orders/messages")] == ["first"]
            ask(admin, "/advertise?address=localhost:32771", "POST")
            assert names.call(105, topic="Orders").json["brokerDatas"][0]["brokerAddrs"] == {"0": "localhost:32771"}
            for address, reason in (
                ("localhost:0", b"expected HOST or HOST:PORT"),
                ("no-such-host.invalid", b"cannot be resolved"),
            ):
                with pytest.raises(urllib.error.HTTPError, match="400") as error:
                    ask(admin, f"/advertise?address={address}", "POST")
                assert reason in error.value.read()
            assert client.put("Orders").code == 0

    async def main() -> None:
        options = ServeOptions(
            tmp_path / "store", admin_port=0, seed=seed, temporary=temporary, clock=ServerClock(), port=0
        )
        async with Server(options) as server:
            await asyncio.to_thread(use, server.addresses)

    asyncio.run(main())
