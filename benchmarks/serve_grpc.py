"""Messages a second through the gRPC endpoint of `mqtool serve`, and the processor time of the server for one.

    python benchmarks/serve_grpc.py [--seconds 3] [--size 1024] [--jobs send-1,send-8,send-32,send-256,receive,rest]

The load comes from this process (grpcio), the server runs in another. `cpu_us` is the processor time of the server, all
its threads, for one message. `receive` takes 32 messages a call and acknowledges each by a call, as the Java client does.
`rest` reports how long the server takes to be ready and what it keeps resident with one client connected.
"""

import argparse
import asyncio
import json
import time
import uuid
from collections.abc import Iterator
from threading import Thread
from typing import Any

import grpc
from serve_client import new_topic, serve, usage

from mqtool.protocol.rocketmq_v2 import definition as d
from mqtool.protocol.rocketmq_v2 import service as s

SERVICE = "/apache.rocketmq.v2.MessagingService/"
TOPIC, GROUP = "Bench", "GBench"
_BATCH = 32


class Connection:
    """One client."""

    def __init__(self, address: str) -> None:
        self.channel = grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
        self.metadata = (
            ("x-mq-client-id", f"bench@{uuid.uuid4()}"),
            ("x-mq-language", "JAVA"),
            ("x-mq-protocol", "v2"),
            ("x-mq-client-version", "5.2.0"),
        )

    def headers(self) -> tuple[tuple[str, str], ...]:
        """Headers of a call: two of them differ each time, as those of the Java client."""
        date = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        return (*self.metadata, ("x-mq-date-time", date), ("x-mq-request-id", str(uuid.uuid4())))

    def unary(self, rpc: str) -> Any:
        """Returns the stub of a call; it takes and gives bytes."""
        return self.channel.unary_unary(SERVICE + rpc)

    def settle(self, settings: d.Settings) -> None:
        """Sends settings on a telemetry stream that stays open."""
        stub = self.channel.stream_stream(SERVICE + "Telemetry")

        def commands() -> Iterator[bytes]:
            yield s.TelemetryCommand(settings=settings).SerializeToString()
            time.sleep(600)

        answers = stub(commands(), metadata=self.headers())
        next(answers)
        Thread(target=lambda: list(_quiet(answers)), daemon=True).start()


def _quiet(answers: Any) -> Iterator[bytes]:
    try:
        yield from answers
    except grpc.RpcError:
        return


def message(size: int) -> bytes:
    """Returns a send request with one message."""
    system = d.SystemProperties(message_id="01" + uuid.uuid4().hex.upper(), message_type=d.NORMAL, born_host="bench")
    system.born_timestamp.GetCurrentTime()
    body = bytes(97 + one % 26 for one in range(size))
    one = d.Message(topic=d.Resource(name=TOPIC), system_properties=system, body=body)
    return s.SendMessageRequest(messages=[one]).SerializeToString()


def send(connection: Connection, width: int, size: int, seconds: float) -> int:
    """Keeps so many sends unanswered; returns how many there were."""
    stub, request = connection.unary("SendMessage"), message(size)
    end, count, waiting = time.perf_counter() + seconds, 0, []
    while time.perf_counter() < end or waiting:
        while len(waiting) < width and time.perf_counter() < end:
            waiting.append(stub.future(request, metadata=connection.headers(), timeout=5))
        answer = s.SendMessageResponse.FromString(waiting.pop(0).result())
        assert answer.status.code == d.OK, answer
        count += 1
    return count


def receive(connection: Connection, most: int) -> int:
    """Receives and acknowledges messages; returns how many there were."""
    stub = connection.channel.unary_stream(SERVICE + "ReceiveMessage")
    ack, count = connection.unary("AckMessage"), 0
    queue = d.MessageQueue(topic=d.Resource(name=TOPIC), id=-1)
    polling = s.ReceiveMessageRequest(group=d.Resource(name=GROUP), message_queue=queue, batch_size=_BATCH)
    polling.filter_expression.expression, polling.invisible_duration.seconds = "*", 60
    polling.long_polling_timeout.seconds = 5
    data = polling.SerializeToString()
    while count < most:
        answers = map(s.ReceiveMessageResponse.FromString, stub(data, metadata=connection.headers(), timeout=20))
        found = [one.message for one in answers if one.WhichOneof("content") == "message"]
        if not found:
            break
        waiting = []
        for one in found:
            request = s.AckMessageRequest(group=polling.group, topic=queue.topic)
            system = one.system_properties
            request.entries.add(message_id=system.message_id, receipt_handle=system.receipt_handle)
            waiting.append(ack.future(request.SerializeToString(), metadata=connection.headers(), timeout=5))
        for future in waiting:
            assert s.AckMessageResponse.FromString(future.result()).status.code == d.OK
        count += len(found)
    return count


def main() -> None:
    """Runs the jobs; prints a line of JSON for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--jobs", default="rest,send-1,send-8,send-32,send-256,receive")
    options = parser.parse_args()
    with serve() as server:
        connection = Connection(server.address)
        asyncio.run(new_topic(server.address, TOPIC))
        entry = d.SubscriptionEntry(topic=d.Resource(name=TOPIC), expression=d.FilterExpression(expression="*"))
        subscription = d.Subscription(group=d.Resource(name=GROUP), subscriptions=[entry])
        connection.settle(d.Settings(client_type=d.SIMPLE_CONSUMER, subscription=subscription))
        for job in options.jobs.split(","):
            if job == "rest":
                resident = usage(server.pid)[1]
                print(json.dumps({"job": job, "ready_s": server.ready_s, "resident_mb": resident}), flush=True)
                continue
            if job.startswith("send"):
                send(connection, 32, options.size, 0.5)
            cpu, began = usage(server.pid)[0] or 0, time.perf_counter()
            if job == "receive":
                count = receive(connection, 5000)
            else:
                count = send(connection, int(job.partition("-")[2]), options.size, options.seconds)
            seconds, cpu = time.perf_counter() - began, (usage(server.pid)[0] or 0) - cpu
            figures = {"per_second": round(count / seconds), "cpu_us": round(cpu / count * 1e6, 1)}
            print(json.dumps({"job": job, **figures}), flush=True)


if __name__ == "__main__":
    main()
