"""The admin port: serves /metrics, /healthz, /readyz and the admin pages over HTTP, read-only.

`/healthz` reports that the process works, `/readyz` whether it accepts and delivers messages.
"""

import asyncio
import logging
from collections.abc import Callable

from mqtool.server.admin import Site, metrics
from mqtool.server.broker.broker import Broker
from mqtool.server.net.listener import listening_on

_LOG = logging.getLogger(__name__)
_REQUEST_S = 10.0
_LAST_ANSWERS_S = 0.2
"""Maximum time in seconds for sending the last answers when the port closes."""
_MAX_HEAD = 16 << 10
_TEXT = "text/plain; charset=utf-8"
_METRICS = "text/plain; version=0.0.4; charset=utf-8"

_Page = tuple[int, str, str]
"""(status, content type, text)."""


class AdminHttp:
    """The HTTP listener of a broker's admin port.

    Attributes:
        port: the port it listens on; valid once it is started.
    """

    def __init__(self, broker: Broker, host: str, port: int, site: Site | None = None) -> None:
        """Creates a listener; port 0 selects a free port."""
        self.port = port
        self._site = site
        self._host = host
        self._server: asyncio.Server | None = None
        self._asked: set[asyncio.Task[None]] = set()
        self._pages: dict[str, Callable[[], _Page]] = {
            "/metrics": lambda: (200, _METRICS, metrics.text(broker)),
            "/healthz": lambda: (200, _TEXT, "ok\n"),
            "/readyz": lambda: _readiness(broker),
        }

    async def start(self) -> None:
        """Starts listening.

        Raises:
            UsageError: the address cannot be bound.
        """
        with listening_on(self._host, self.port):
            self._server = await asyncio.start_server(self._serve, self._host or None, self.port, limit=_MAX_HEAD)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Closes the port; when it returns, no page reads the store any more."""
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._site is not None:
            await self._site.close()
        if self._asked:  # send answers that are ready; idle browser connections are just closed
            _, silent = await asyncio.wait(self._asked, timeout=_LAST_ANSWERS_S)
            for task in silent:
                task.cancel()
            await asyncio.gather(*silent, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._asked.add(task)
        task.add_done_callback(self._asked.discard)
        try:
            async with asyncio.timeout(_REQUEST_S):
                head = await reader.readuntil(b"\r\n\r\n")
                page = await self._site.answer(head) if self._site is not None else None
                writer.write(self._answer(head) if page is None else page)
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            _LOG.debug("admin request not answered error=%r", error)
        finally:
            writer.close()

    def _answer(self, head: bytes) -> bytes:
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        method, path = (words[0], words[1].partition("?")[0]) if len(words) == 3 else ("", "")
        page = self._pages.get(path)
        if method not in ("GET", "HEAD"):
            status, kind, shown = 405, _TEXT, "only GET\n"
        elif page is None:
            status, kind, shown = 404, _TEXT, "".join(f"{name}\n" for name in self._pages)
        else:
            status, kind, shown = page()
        data = shown.encode("utf-8", "replace")
        reply = f"HTTP/1.1 {status} \r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n"
        reply += "Connection: close\r\n\r\n"
        return reply.encode() + (b"" if method == "HEAD" else data)


def _readiness(broker: Broker) -> _Page:
    problem = broker.problem
    return (200, _TEXT, "ready\n") if problem is None else (503, _TEXT, f"{problem}\n")
