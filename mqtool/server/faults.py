"""Requests to a test server: the list of them, and faults, by which they are refused or answered late.

The same for clients of both protocols. Must be used in the event loop's thread.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from msgspec import Struct

from mqtool.engine.clock import SystemClock
from mqtool.errors import UsageError
from mqtool.protocol.command import STORED_CODES, Command, ResponseCode, name_of
from mqtool.protocol.command import RequestCode as R
from mqtool.server.broker.send.send_message import V2, topic_in
from mqtool.server.net.peer import Answer, Handler, Peer, awaited, not_supported

T = TypeVar("T")

_STEP_S = 0.02
_KEPT = 10_000
_GROUPS = ("consumerGroup", "producerGroup", "group", V2["group"])
_CODES = {
    "send": (R.SEND_MESSAGE, R.SEND_MESSAGE_V2, R.SEND_BATCH_MESSAGE),
    "pull": (R.PULL_MESSAGE, R.LITE_PULL_MESSAGE, R.POP_MESSAGE, R.POP_LITE_MESSAGE),
    "ack": (R.ACK_MESSAGE, R.BATCH_ACK_MESSAGE, R.UPDATE_CONSUMER_OFFSET),
}
_KINDS = {code.name: kind for kind, codes in _CODES.items() for code in codes}


class Fault(Struct):
    """The next `left` requests of a kind, or those for a topic, that are refused; the kind is send, pull or ack."""

    kind: str
    left: int
    code: str  # name of a response code
    topic: str | None


class Request(Struct):
    """A request of a client."""

    code: str  # name of its code; of a gRPC client, that of a request that does the same, or else the name of the RPC
    topic: str  # and group: those that it names, else ""
    group: str
    client: str  # "host:port" of the connection
    outcome: str = ""  # name of the answer's code, and its remark; "" until it is answered


def code_named(name: str) -> ResponseCode:
    """Returns a response code by its name or number; raises UsageError if it is not one of a refusal."""
    try:
        code = ResponseCode(int(name)) if name.isdecimal() else ResponseCode[name]
    except (KeyError, ValueError):
        code = ResponseCode.SUCCESS
    if code in STORED_CODES:
        raise UsageError(f"code: expected the response code of a refusal, such as SYSTEM_BUSY, found {name!r}")
    return code


class Faults:
    """The requests and the faults of one server; `handlers` are those of its remoting requests."""

    def __init__(self, handlers: Mapping[int, Handler], check: Callable[[Command, Peer], Answer]) -> None:
        """`check` returns the refusal of a remoting request that its client may not send, else None."""
        self.requests: deque[Request] = deque(maxlen=_KEPT)  # the last ones, in the order of arrival
        self.planned: list[Fault] = []
        self.delay_ms = 0.0
        self.running = asyncio.Event()  # cleared to keep requests waiting
        self.running.set()
        self._handlers, self._check = handlers, check
        self._resets = 0

    def handle(self, command: Command, peer: Peer) -> Awaitable[Answer] | Answer:
        """Handles a request of a remoting client."""

        def handle() -> Awaitable[Answer] | Answer:
            refusal = self._check(command, peer)
            handler = self._handlers.get(command.code, not_supported)  # a reset replaces handlers
            return handler(command, peer) if refusal is None else refusal

        group = next((command.fields[name] for name in _GROUPS if name in command.fields), "")
        request = Request(name_of(R, command.code), topic_in(command), group, peer.address)
        return self.answer(request, handle, command.reply, _outcome)

    def answer(
        self,
        request: Request,
        handle: Callable[[], Awaitable[T] | T],
        refuse: Callable[[ResponseCode, str], T],
        outcome: Callable[[T], str],
    ) -> Awaitable[T] | T:
        """Returns the answer to a request: that of `handle`, or of `refuse` with a response code and a remark."""
        self.requests.append(request)
        resets = self._resets

        def begin() -> Awaitable[T] | T:
            if resets != self._resets:
                return refuse(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "sent before the reset that a test asked for")
            fault = self._next(_KINDS.get(request.code, ""), request.topic)
            return handle() if fault is None else refuse(code_named(fault.code), f"{fault.code}, as a test asked")

        def noted(answer: T) -> T:
            request.outcome = outcome(answer)
            return answer

        async def later(answer: Awaitable[T]) -> T:
            return noted(await answer)

        answer = begin() if self.running.is_set() and not self.delay_ms else self._later(begin)
        return later(answer) if isinstance(answer, Awaitable) else noted(answer)

    def reset(self) -> None:
        """Ends all faults, and refuses the requests that wait for their end."""
        self._resets += 1
        self.clear()
        self.requests.clear()

    def clear(self) -> None:
        """Ends all faults."""
        self.planned.clear()
        self.delay_ms = 0.0
        self.running.set()

    def _next(self, kind: str, topic: str) -> Fault | None:
        fault = next((item for item in self.planned if item.kind == kind and item.topic in (None, topic)), None)
        if fault is not None:
            fault.left -= 1
            if not fault.left:
                self.planned.remove(fault)
        return fault

    async def _later(self, begin: Callable[[], Awaitable[T] | T]) -> T:
        await self.running.wait()
        begun = SystemClock.monotonic()
        while (rest := begun + self.delay_ms / 1000 - SystemClock.monotonic()) > 0:
            await asyncio.sleep(min(rest, _STEP_S))  # a test may end the delay meanwhile
        return await awaited(begin())


def _outcome(answer: Answer) -> str:
    """Returns what to say of an answer; None has been written already, or is not wanted."""
    return "SUCCESS" if answer is None else answer.outcome
