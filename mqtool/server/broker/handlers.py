"""Collects the request handlers of all processors, and turns refusals into answers."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Protocol

from mqtool.errors import MqtoolError
from mqtool.protocol.codes import ResponseCode
from mqtool.protocol.command import Command
from mqtool.server.broker.answers import RefusalError
from mqtool.server.net.peer import Answer, Handler, Peer

_LOG = logging.getLogger(__name__)


class Processor(Protocol):
    """Handles certain request codes."""

    def handlers(self) -> Mapping[int, Handler]:
        """Returns the handler of each request code; a handler may raise any MqtoolError."""


def table(processors: Iterable[Processor], check: Callable[[Command], None] | None = None) -> dict[int, Handler]:
    """Returns the handlers of all processors by request code; errors that they raise become answers.

    The listener answers other codes as not supported.

    Args:
        processors: the processors.
        check: called before each handler; may raise any MqtoolError.
    """
    handlers: dict[int, Handler] = {}
    for processor in processors:
        own = processor.handlers()
        assert handlers.keys().isdisjoint(own), "a request code has two handlers"
        handlers |= {code: _answering(handler, check) for code, handler in own.items()}
    return handlers


def _answering(handler: Handler, check: Callable[[Command], None] | None) -> Handler:
    """Wraps a handler so that errors it raises become answers."""

    def handle(command: Command, peer: Peer) -> Awaitable[Answer] | Answer:
        try:
            if check is not None:
                check(command)
            answer = handler(command, peer)
        except MqtoolError as error:
            return _refused(command, error)
        if answer is None or isinstance(answer, Command):
            return answer
        return _later(command, answer)

    return handle


async def _later(command: Command, answer: Awaitable[Answer]) -> Answer:
    try:
        return await answer
    except MqtoolError as error:
        return _refused(command, error)
    except OSError as error:
        return command.reply(ResponseCode.SYSTEM_ERROR, str(error))


def _refused(command: Command, error: MqtoolError) -> Command:
    if isinstance(error, RefusalError):
        return command.reply(error.code, error.remark)
    _LOG.warning("request failed code=%d error=%s", command.code, error)
    return command.reply(ResponseCode.SYSTEM_ERROR, str(error))
