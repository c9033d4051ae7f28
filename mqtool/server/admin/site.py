"""The admin site: accepts requests, and limits their number and duration.

Tables are copied in the event loop's thread. A separate thread reads the store and renders the page, so that clients of
the broker do not wait for somebody who reads the page.
"""

import asyncio
import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from msgspec import Struct, field

from mqtool.errors import MqtoolError, StoreClosedError
from mqtool.server.admin import http, pages
from mqtool.server.admin.http import BadRequestError, Reply, Request
from mqtool.server.admin.message_access import MessageAccess
from mqtool.server.admin.snapshot import Snapshot, take
from mqtool.server.broker.broker import Broker

_LOG = logging.getLogger(__name__)

STYLE = "/style.css"
_MAX_SECONDS = 5.0
_MAX_WAITING = 16


class Access(Struct, frozen=True):
    """Access rights to the pages.

    Attributes:
        names: host names that a browser may use, in addition to IP addresses and localhost.
        shows_messages: whether messages may be shown.
    """

    names: frozenset[str] = field(default_factory=frozenset)
    shows_messages: bool = True


class Site:
    """The admin pages of one broker. Must be used in the event loop's thread."""

    def __init__(self, broker: Broker, access: Access | None = None, config: Mapping[str, str] | None = None) -> None:
        """Creates the site of a broker.

        Args:
            broker: the broker to show.
            access: access rights to the pages.
            config: keys of the broker's configuration, used to open a read-only store.
        """
        self._broker = broker
        self._access = access or Access()
        self._message_access = MessageAccess(broker, config or {})
        self._thread = ThreadPoolExecutor(1, "mqtool-page")
        self._waiting = 0

    async def answer(self, head: bytes) -> bytes | None:
        """Returns the reply to a request; None if the path does not belong to this site.

        Args:
            head: head of the request, including the empty line.
        """
        if http.path_of(head) not in (STYLE, *pages.ROUTES):
            return None
        with_body = not head.startswith(b"HEAD ")
        try:
            reply = await self._reply(http.parse(head))
        except BadRequestError as error:
            reply = pages.problem(error.status, "No page", f"{error}.")
        return reply.data(with_body=with_body)

    async def close(self) -> None:
        """Waits until the current page is rendered, then closes what was opened for pages."""
        await asyncio.get_running_loop().run_in_executor(None, self._close)

    def _close(self) -> None:
        self._thread.shutdown(cancel_futures=True)
        self._message_access.close()

    async def _reply(self, request: Request) -> Reply:
        if request.method not in ("GET", "HEAD"):
            raise BadRequestError(405, "This page only reads: GET")
        if not http.is_own_host(request.host, self._access.names):
            raise BadRequestError(421, "This page is asked for under a name that is not its own; --advertise names one")
        if request.path == STYLE:
            return await asyncio.get_running_loop().run_in_executor(None, pages.style)
        if self._waiting >= _MAX_WAITING or self._broker.is_stopping:
            raise BadRequestError(
                503, "Too many pages are being rendered, or the broker is stopping; try again in a moment"
            )
        self._waiting += 1
        rendering = asyncio.get_running_loop().run_in_executor(self._thread, self._render, request, take(self._broker))
        rendering.add_done_callback(self._rendered)
        try:
            return await asyncio.wait_for(asyncio.shield(rendering), _MAX_SECONDS)
        except TimeoutError as error:
            raise BadRequestError(503, f"This takes more than {_MAX_SECONDS:g} seconds; ask for less") from error

    def _rendered(self, _rendering: "asyncio.Future[Reply]") -> None:
        self._waiting -= 1

    def _render(self, request: Request, snapshot: Snapshot) -> Reply:
        """Renders a page in the thread for pages."""
        try:
            question = pages.PageRequest(
                request.fields, snapshot, self._message_access.messages(), self._access.shows_messages
            )
            return pages.ROUTES[request.path](question)
        except StoreClosedError:
            return pages.problem(503, "No page", "The broker stops.")
        except (MqtoolError, OSError) as error:
            _LOG.warning("a page could not be rendered path=%s error=%s", request.path, error)
            return pages.problem(500, "No page", f"The store could not be read: {error}.")
        except Exception:  # noqa: BLE001 - a bug; the browser gets an answer all the same
            _LOG.exception("a page failed path=%s", request.path)
            return pages.problem(500, "No page", "The page could not be built. The log of the server has the error.")
