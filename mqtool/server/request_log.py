"""What clients asked a test server for: the last requests, of remoting and gRPC clients, in the order of arrival."""

from collections import deque
from collections.abc import Awaitable, Mapping
from functools import partial

from msgspec import Struct

from mqtool.engine import PutResult
from mqtool.protocol.command import Command, RequestCode
from mqtool.server.broker.send.fast_path import SendFastPath, SendNumbers
from mqtool.server.broker.send.send_message import V2, topic_in
from mqtool.server.net.peer import Answer, Handler, Peer

_KEPT = 10_000


class Request(Struct):
    """A request of a client; one of a gRPC client is the request of a remoting client that does the same."""

    code: str  # name of its code, such as "PULL_MESSAGE"
    topic: str  # and group: those that its header names, else ""
    group: str
    client: str  # "host:port" of the connection
    outcome: str = ""  # name of the answer's code, and its remark; "" until it is answered

    def end(self, answer: Answer) -> Answer:
        """Sets the outcome; a handler that returns no answer has written it already, or none is wanted."""
        self.outcome = "SUCCESS" if answer is None else answer.outcome
        return answer


class RequestLog:
    """The last requests of one server. Must be used in the event loop's thread."""

    def __init__(self) -> None:
        self.requests: deque[Request] = deque(maxlen=_KEPT)

    def recorded(self, handlers: Mapping[int, Handler]) -> dict[int, Handler]:
        """Returns handlers that record each request before they pass it on."""
        return {code: partial(self._handle, RequestCode(code).name, handler) for code, handler in handlers.items()}

    def _handle(self, code: str, handler: Handler, command: Command, peer: Peer) -> Awaitable[Answer] | Answer:
        fields = command.fields
        names = ("consumerGroup", "producerGroup", "group", V2["group"])
        group = next((fields[name] for name in names if name in fields), "")
        request = Request(code, topic_in(command), group, peer.address)
        self.requests.append(request)
        answer = handler(command, peer)
        return request.end(answer) if answer is None or isinstance(answer, Command) else _later(request, answer)

    def add_refusal(self, code: int, topic: str, peer: Peer, outcome: str) -> None:
        """Records a request that a fault refuses, whose handler is not called."""
        self.requests.append(Request(RequestCode(code).name, topic, "", peer.address, outcome))

    def record_puts(self, sends: SendFastPath) -> None:
        """Records the sends of gRPC clients that reach no handler."""
        put = sends.put

        def recorded(topic: str, numbers: SendNumbers, properties: str, body: bytes, peer: Peer) -> PutResult | None:
            result = put(topic, numbers, properties, body, peer)
            if result is not None:
                self.requests.append(Request(RequestCode.SEND_MESSAGE_V2.name, topic, topic, peer.address, "SUCCESS"))
            return result

        sends.put = recorded  # type: ignore[method-assign]  # so that a server without a log has no check


async def _later(request: Request, answer: Awaitable[Answer]) -> Answer:
    return request.end(await answer)
