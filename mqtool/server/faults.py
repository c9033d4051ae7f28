"""Faults that a test asks for: requests that are refused, or answered late, the same for clients of both protocols.

Must be used in the event loop's thread.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from msgspec import Struct

from mqtool.engine.clock import SystemClock
from mqtool.errors import UsageError
from mqtool.protocol.command import STORED_CODES, Command, ResponseCode
from mqtool.protocol.command import RequestCode as R
from mqtool.server.broker.send.send_message import topic_in
from mqtool.server.net.peer import Answer, Handler, Peer, awaited, not_supported

T = TypeVar("T")

_STEP_S = 0.02

_CODES = {
    "send": (R.SEND_MESSAGE, R.SEND_MESSAGE_V2, R.SEND_BATCH_MESSAGE),
    "pull": (R.PULL_MESSAGE, R.LITE_PULL_MESSAGE, R.POP_MESSAGE, R.POP_LITE_MESSAGE),
    "ack": (R.ACK_MESSAGE, R.BATCH_ACK_MESSAGE, R.UPDATE_CONSUMER_OFFSET),
}
_KINDS: dict[int, str] = {code: kind for kind, codes in _CODES.items() for code in codes}


class Fault(Struct):
    """The next `left` requests of a kind, or those for a topic, that are refused; the kind is send, pull or ack."""

    kind: str
    left: int
    code: str  # name of a response code
    topic: str | None


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
    """The faults of one server; `handlers` are those of its requests."""

    def __init__(self, handlers: Mapping[int, Handler]) -> None:
        self.planned: list[Fault] = []
        self.delay_ms = 0.0
        # called with request code, topic, connection and the name of the response code
        self.on_refusal: Callable[[int, str, Peer, str], None] = lambda *_: None
        self.running = asyncio.Event()  # cleared to keep requests waiting
        self.running.set()
        self._handlers = handlers

    def handle(self, command: Command, peer: Peer) -> Awaitable[Answer] | Answer:
        """Handles a request of a remoting client."""

        def handle() -> Awaitable[Answer] | Answer:
            return self._handlers.get(command.code, not_supported)(command, peer)  # a reset replaces handlers

        return self.around(command.code, topic_in(command), peer, handle, command.reply)

    def around(
        self,
        code: int,
        topic: str,
        peer: Peer,
        handle: Callable[[], Awaitable[T] | T],
        refuse: Callable[[ResponseCode, str], T],
    ) -> Awaitable[T] | T:
        """Returns the answer to a request: that of `handle`, or of `refuse` with a response code and a remark.

        `code` is that of the request, or of one that does the same as an RPC.
        """

        def answer() -> Awaitable[T] | T:
            fault = self._next(_KINDS.get(code, ""), topic)
            if fault is None:
                return handle()
            self.on_refusal(code, topic, peer, fault.code)
            return refuse(code_named(fault.code), f"{fault.code}, as a test asked")

        return answer() if self.running.is_set() and not self.delay_ms else self._later(answer)

    def _next(self, kind: str, topic: str) -> Fault | None:
        fault = next((item for item in self.planned if item.kind == kind and item.topic in (None, topic)), None)
        if fault is not None:
            fault.left -= 1
            if not fault.left:
                self.planned.remove(fault)
        return fault

    async def _later(self, answer: Callable[[], Awaitable[T] | T]) -> T:
        await self.running.wait()
        begun = SystemClock.monotonic()
        while (rest := begun + self.delay_ms / 1000 - SystemClock.monotonic()) > 0:
            await asyncio.sleep(min(rest, _STEP_S))  # a test may end the delay meanwhile
        return await awaited(answer())
