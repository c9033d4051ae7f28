"""The event loop: uvloop if it is installed (extra `serve`), otherwise asyncio's own."""

import asyncio
from collections.abc import Callable


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Returns a function that creates an event loop, for `asyncio.Runner(loop_factory=…)`."""
    try:
        import uvloop  # noqa: PLC0415 - optional dependency
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop
