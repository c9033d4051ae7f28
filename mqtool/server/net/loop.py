"""The event loop: uvloop where it is installed (extra `serve`), asyncio's own elsewhere."""

import asyncio
from collections.abc import Callable


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Returns what makes an event loop, for `asyncio.Runner(loop_factory=…)`."""
    try:
        import uvloop  # noqa: PLC0415 - optional dependency
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop
