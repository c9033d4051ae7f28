"""Network connections, HTTP/2, TLS, limits, and access control.

`connections` accepts and opens them; start with `peer`, which is one end of either. No module here
depends on the meaning of a request, except `acl`, which reads its topic and group. The event loop is uvloop's if that
is installed (extra `serve`), otherwise asyncio's own. Docs page: docs/protocol.md.
"""

import asyncio
from collections.abc import Callable


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Returns a function that creates an event loop, for `asyncio.Runner(loop_factory=…)`."""
    try:
        import uvloop  # noqa: PLC0415 - optional dependency
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop
