"""A bare gRPC client of RocketMQ 5: grpcio, an HTTP/2 that is not the server's, and the generated messages."""

import queue
import threading
import uuid
from collections.abc import Iterable
from typing import Any, Self

import grpc

from mqtool.protocol.rocketmq_v2 import definition as d
from mqtool.protocol.rocketmq_v2 import service as s

SERVICE = "/apache.rocketmq.v2.MessagingService/"
STREAMS = {"ReceiveMessage", "PullMessage"}


class GrpcClient:
    """One client id on one connection. A context manager."""

    def __init__(self, address: str, *, client_id: str | None = None, headers: Iterable[tuple[str, str]] = ()) -> None:
        """Connects to "host:port"; every call has the headers."""
        self.client_id = client_id or f"test@{uuid.uuid4()}"
        self.headers = tuple(headers)
        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        self.channel = grpc.insecure_channel(address, options=[*options, ("grpc.use_local_subchannel_pool", 1)])
        host, _, port = address.rpartition(":")
        self.endpoints = d.Endpoints(scheme=d.IPv4, addresses=[d.Address(host=host, port=int(port))])
        self.arrived: queue.Queue[Any] = queue.Queue()
        self._commands: queue.Queue[Any] = queue.Queue()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the telemetry stream and the connection."""
        self._commands.put(None)
        self.channel.close()

    @property
    def metadata(self) -> list[tuple[str, str]]:
        """Headers of every call."""
        return [*([("x-mq-client-id", self.client_id)] if self.client_id else []), *self.headers]

    def call(self, rpc: str, seconds: float = 30, **fields: Any) -> Any:
        """Returns the answer to a call; a list of answers where they are a stream."""
        request, answer = getattr(s, f"{rpc}Request"), getattr(s, f"{rpc}Response")
        kind = self.channel.unary_stream if rpc in STREAMS else self.channel.unary_unary
        stub = kind(SERVICE + rpc, request.SerializeToString, answer.FromString)
        found = stub(request(**fields), metadata=self.metadata, timeout=seconds)
        return list(found) if rpc in STREAMS else found

    def telemetry(self, settings: d.Settings) -> Any:
        """Opens the telemetry stream; returns the first command that comes back, or the error."""
        stub = self.channel.stream_stream(
            SERVICE + "Telemetry", s.TelemetryCommand.SerializeToString, s.TelemetryCommand.FromString
        )
        self._commands.put(s.TelemetryCommand(settings=settings))
        answers = stub(iter(self._commands.get, None), metadata=self.metadata)

        def read() -> None:
            try:
                for command in answers:
                    self.arrived.put(command)
            except grpc.RpcError as error:
                self.arrived.put(error)

        threading.Thread(target=read, daemon=True).start()
        return self.arrived.get(timeout=30)

    def produce(self, *topics: str) -> Any:
        """Sends the settings of a producer; returns the answer."""
        publishing = d.Publishing(topics=[d.Resource(name=one) for one in topics])
        return self.telemetry(d.Settings(client_type=d.PRODUCER, publishing=publishing))

    def consume(self, group: str, topic: str, kind: int = d.SIMPLE_CONSUMER) -> Any:
        """Sends the settings of a consumer; returns the answer."""
        entry = d.SubscriptionEntry(topic=d.Resource(name=topic), expression=d.FilterExpression(expression="*"))
        subscription = d.Subscription(group=d.Resource(name=group), subscriptions=[entry])
        settings = d.Settings(client_type=kind, subscription=subscription)  # type: ignore[arg-type]
        return self.telemetry(settings)

    def send(self, topic: str, body: bytes, *, properties: dict[str, str] | None = None, **system: Any) -> Any:
        """Sends a message; `system` fills its system properties."""
        message = message_of(topic, body, properties=properties, **system)
        return self.call("SendMessage", messages=[message])

    def receive(self, group: str, topic: str, *, invisible: int = 30, seconds: float = 30, **more: Any) -> list[Any]:
        """Returns the messages of one poll."""
        fields = {
            "group": d.Resource(name=group),
            "message_queue": d.MessageQueue(topic=d.Resource(name=topic), id=-1),
            "filter_expression": d.FilterExpression(type=d.TAG, expression="*"),
            "batch_size": 16,
            "invisible_duration": {"seconds": invisible},
        }
        answers = self.call("ReceiveMessage", seconds, **{**fields, **more})
        return [one.message for one in answers if one.WhichOneof("content") == "message"]

    def ack(self, group: str, topic: str, message: d.Message) -> Any:
        """Acknowledges a message."""
        entry = s.AckMessageEntry(
            message_id=message.system_properties.message_id, receipt_handle=message.system_properties.receipt_handle
        )
        return self.call("AckMessage", group=d.Resource(name=group), topic=d.Resource(name=topic), entries=[entry])


def message_of(topic: str, body: bytes, *, properties: dict[str, str] | None = None, **system: Any) -> d.Message:
    """Returns a message with a new id."""
    filled = d.SystemProperties(**{"message_id": "01" + uuid.uuid4().hex.upper(), "message_type": d.NORMAL, **system})
    return d.Message(
        topic=d.Resource(name=topic), body=body, user_properties=properties or {}, system_properties=filled
    )


def code(answer: Any) -> str:
    """Returns the name of the status code of an answer."""
    return d.Code.Name(answer.status.code)
