"""The admin site: parses requests, limits their number and duration, and renders pages.

A connection serves one GET, with limits on every part of it. Tables are copied in the event loop's thread. A separate
thread reads the store and renders the page, so that clients of the broker do not wait for somebody who reads the page.
The function of a page reads what the query asks for, and fills a template.
"""

import asyncio
import ipaddress
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from urllib.parse import parse_qsl, unquote

from msgspec import Struct, field

from mqtool import __version__
from mqtool.errors import MqtoolError, StoreClosedError
from mqtool.pages import templates
from mqtool.server.admin import content, message
from mqtool.server.admin.content import MessageAccess, Messages, Snapshot, take
from mqtool.server.admin.message import MAX_HITS, look_up
from mqtool.server.broker.broker import Broker

if TYPE_CHECKING:
    from jinja2 import Environment


_LOG = logging.getLogger(__name__)

LONGEST_TARGET = 4096
MAX_FIELDS = 16
LONGEST_FIELD = 1024

HTML = "text/html; charset=utf-8"
CSS = "text/css; charset=utf-8"

_REASONS = {
    200: "OK",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    414: "URI Too Long",
    421: "Misdirected Request",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src data:; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Connection": "close",
}
"""Headers of every reply; they forbid resources of other hosts, frames and caching."""

T = TypeVar("T")

ROWS = 100
"""Maximum number of rows on one page of a list."""
_FIRST = 15
"""Maximum number of rows of a list on the overview page."""

STYLE = "/style.css"
MAX_SECONDS = 5.0
MAX_WAITING = 16


class BadRequestError(Exception):
    """A request that is answered with an error page of this HTTP status."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Request(Struct, frozen=True):
    """A request: method, path, query fields, and headers by their names in lower case."""

    method: str
    path: str
    fields: dict[str, str]
    headers: dict[str, str]


class Reply(NamedTuple):
    """HTTP status, content type and text of a reply."""

    status: int
    kind: str
    text: str

    def data(self, *, with_body: bool) -> bytes:
        """Encodes the reply with its headers, with or without its body."""
        body = self.text.encode("utf-8", "replace")
        headers = {"Content-Type": self.kind, "Content-Length": str(len(body)), **_HEADERS}
        if self.status == 405:
            headers["Allow"] = "GET, HEAD"
        if self.status == 503:
            headers["Retry-After"] = "2"
        head = f"HTTP/1.1 {self.status} {_REASONS[self.status]}\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in headers.items()) + "\r\n"
        return head.encode() + (body if with_body else b"")


def path_of(head: bytes) -> str:
    """Returns the path of a request; "" if the request has none."""
    words = head.split(b"\r\n", 1)[0].split(b" ")
    return words[1].partition(b"?")[0].decode("latin-1") if len(words) == 3 else ""


def parse(head: bytes) -> Request:
    """Parses the head of a request; raises BadRequestError if it is invalid, or exceeds a limit."""
    first, *lines = head.decode("latin-1").split("\r\n")
    reason = first.split(" ")
    if len(reason) != 3 or not reason[2].startswith("HTTP/1."):
        raise BadRequestError(400, "expected METHOD TARGET HTTP/1.1")
    if len(reason[1]) > LONGEST_TARGET:
        raise BadRequestError(414, f"expected a target of at most {LONGEST_TARGET} bytes, found {len(reason[1])}")
    path, _, query = reason[1].partition("?")
    headers = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    if [name for name, _ in headers].count("host") > 1:
        raise BadRequestError(400, "expected one Host, found several")
    return Request(reason[0], unquote(path), _fields(query), dict(headers))


def _fields(query: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError as error:
        raise BadRequestError(400, f"expected at most {MAX_FIELDS} fields") from error
    for _, value in pairs:
        if len(value) > LONGEST_FIELD:
            raise BadRequestError(400, f"expected at most {LONGEST_FIELD} characters in a field, found {len(value)}")
    return {name: value.strip() for name, value in pairs}


def is_own_host(host: str | None, names: Iterable[str]) -> bool:
    """Whether the Host header of a request names this server, by one of `names`, an IP address or localhost.

    This prevents DNS rebinding: a foreign site whose name resolves to this server's address sends its own name here.
    """
    name = (host or "").lower()
    name = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
    if name.rstrip(".") in {"localhost", *(own.lower() for own in names)} - {""}:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class PageRequest(NamedTuple):
    """The input of a page."""

    fields: Mapping[str, str]  # query fields
    # snapshot, messages: the broker's tables and its store
    snapshot: Snapshot
    messages: Messages
    shows_messages: bool  # whether messages may be shown


class Part(NamedTuple):
    """Consecutive rows of a list, and their positions in it."""

    rows: Sequence[object]
    number: int
    last: int
    total: int


def overview(request: PageRequest) -> Reply:
    """Renders the first page: state, rates, health, largest lags and busiest topics."""
    snapshot, messages = request.snapshot, request.messages
    state, sentence = content.verdict(snapshot)
    lags = content.lags(snapshot, messages)
    rows = content.topics(snapshot, messages, lags, own=False)
    busiest = sorted(rows, key=lambda row: (-row.rate, -row.messages, row.name))
    return _page(
        200,
        "overview.html",
        request,
        state=state,
        sentence=sentence,
        health=content.health(snapshot, messages),
        lags=lags[:_FIRST],
        pairs=len(lags),
        topics=busiest[:_FIRST],
        all_topics=len(rows),
    )


def topics(request: PageRequest) -> Reply:
    """Renders the list of all topics by name."""
    fields, snapshot, messages = request.fields, request.snapshot, request.messages
    own = fields.get("own") == "1"
    rows = content.topics(snapshot, messages, content.lags(snapshot, messages), own=own)
    query = fields.get("q", "").lower()
    part = _part([row for row in rows if query in row.name.lower()], fields)
    return _page(200, "topics.html", request, part=part, own=own)


def groups(request: PageRequest) -> Reply:
    """Renders the list of all consumer groups, largest lag first, groups without offsets last."""
    fields, snapshot = request.fields, request.snapshot
    lags = content.lags(snapshot, request.messages)
    idle = snapshot.groups - {lag.group for lag in lags}
    rows: list[content.Lag] = list(lags)
    for name in sorted(idle):
        online = snapshot.online.get(name)
        rows.append(content.Lag(name, "", 0, len(online.members) if online else 0, 0.0))
    query = fields.get("q", "").lower()
    part = _part([row for row in rows if query in row.group.lower() or query in row.topic.lower()], fields)
    return _page(200, "groups.html", request, part=part)


def topic(request: PageRequest) -> Reply:
    """Renders the page about one topic."""
    name = request.fields.get("name", "")
    view = content.topic(name, request.snapshot, request.messages)
    if view is None:
        return problem(404, "No such topic", f"There is no topic {name}.", request)
    return _page(200, "topic.html", request, topic=view, part=_part(view.queues, request.fields))


def group(request: PageRequest) -> Reply:
    """Renders the page about one consumer group."""
    name = request.fields.get("name", "")
    view = content.group(name, request.snapshot, request.messages)
    if view is None:
        return problem(404, "No such group", f"There is no group {name}.", request)
    return _page(200, "group.html", request, group=view, part=_part(view.offsets, request.fields))


def messages(request: PageRequest) -> Reply:
    """Renders the look-up forms and the result."""
    if not request.shows_messages:
        reason = "This broker checks accounts, which this page cannot do, so it shows no messages."
        return problem(403, "No messages here", reason, request)
    result = look_up(request.fields, request.snapshot, request.messages)
    status, details, hits = 200, None, []
    if result is not None:
        status = 400 if result.problem else 200 if result.hits else 404
        if len(result.hits) == 1:
            details = message.details_of(result.hits[0], request.snapshot)
        hits = [message.hit(record) for record in result.hits]
    return _page(status, "messages.html", request, result=result, details=details, hits=hits, most=MAX_HITS)


ROUTES: dict[str, Callable[[PageRequest], Reply]] = {
    "/": overview,
    "/topics": topics,
    "/groups": groups,
    "/topic": topic,
    "/group": group,
    "/messages": messages,
}


def problem(status: int, title: str, sentence: str, request: PageRequest | None = None) -> Reply:
    """Renders an error page."""
    return _page(status, "problem.html", request, title=title, sentence=sentence)


@cache
def style() -> Reply:
    """Returns the style sheet."""
    return Reply(200, CSS, _environment().get_template("style.css").render())


def _part(rows: Sequence[T], fields: Mapping[str, str]) -> Part:
    last = max(1, -(-len(rows) // ROWS))
    page = fields.get("page", "")
    number = min(int(page) if page.isascii() and page.isdigit() and len(page) < 10 else 1, last) or 1
    return Part(rows[(number - 1) * ROWS : number * ROWS], number, last, len(rows))


_SECONDS = 10
_REFRESHED = frozenset({"overview.html", "topic.html", "group.html"})
"""Pages that the browser loads again by itself: those without a field to type in."""


def _page(status: int, template: str, request: PageRequest | None, **values: object) -> Reply:
    created = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
    text = (
        _environment()
        .get_template(template)
        .render(
            broker=request.snapshot if request else None,
            fields=request.fields if request else {},
            shows_messages=request is not None and request.shows_messages,
            made=created,
            seconds=_SECONDS if template in _REFRESHED else None,
            version=__version__,
            **values,
        )
    )
    return Reply(status, HTML, text)


@cache
def _environment() -> "Environment":
    environment = templates("mqtool.server.admin")
    environment.filters.update(rate=_rate, lines=_lines)
    return environment


def _lines(text: str) -> object:
    """Escapes a text and keeps its line breaks; the caller has replaced invisible characters."""
    from markupsafe import escape  # noqa: PLC0415

    return escape(text)


def _rate(value: float) -> str:
    return f"{value:,.1f}".replace(",", " ")


class Access(Struct, frozen=True):
    """Access rights to the pages."""

    # host names that a browser may use, in addition to IP addresses and localhost
    names: frozenset[str] = field(default_factory=frozenset)
    shows_messages: bool = True  # whether messages may be shown


class Site:
    """The admin pages of one broker. Must be used in the event loop's thread."""

    def __init__(self, broker: Broker, access: Access | None = None, config: Mapping[str, str] | None = None) -> None:
        """Creates the site of a broker; a read-only store is opened with the keys of `config`."""
        self._broker = broker
        self._access = access or Access()
        self._message_access = MessageAccess(broker, config or {})
        self._thread = ThreadPoolExecutor(1, "mqtool-page")
        self._waiting = 0

    def serve(self, broker: Broker) -> None:
        """Shows another broker from now on."""
        self._broker = self._message_access.broker = broker

    async def answer(self, head: bytes) -> bytes | None:
        """Returns the reply to a request (head and empty line); None if the path does not belong to this site."""
        if path_of(head) not in (STYLE, *ROUTES):
            return None
        with_body = not head.startswith(b"HEAD ")
        try:
            reply = await self._reply(parse(head))
        except BadRequestError as error:
            reply = problem(error.status, "No page", f"{error}.")
        return reply.data(with_body=with_body)

    async def close(self) -> None:
        """Waits until the current page is rendered, then closes what was opened for pages."""
        await asyncio.get_running_loop().run_in_executor(None, self._close)

    def _close(self) -> None:
        self._thread.shutdown(cancel_futures=True)
        self._message_access.close()

    async def _reply(self, request: Request) -> Reply:
        if request.method not in ("GET", "HEAD"):
            raise BadRequestError(405, "This page is read-only; use GET")
        if not is_own_host(request.headers.get("host"), self._access.names):
            raise BadRequestError(
                421, "The Host of this request is not a name of this server; set one with --advertise"
            )
        if request.path == STYLE:
            return await asyncio.get_running_loop().run_in_executor(None, style)
        if self._waiting >= MAX_WAITING or self._broker.is_stopping:
            raise BadRequestError(
                503, "Too many pages are being rendered, or the broker is stopping; try again in a moment"
            )
        self._waiting += 1
        rendering = asyncio.get_running_loop().run_in_executor(self._thread, self._render, request, take(self._broker))
        rendering.add_done_callback(self._rendered)
        try:
            return await asyncio.wait_for(asyncio.shield(rendering), MAX_SECONDS)
        except TimeoutError as error:
            raise BadRequestError(503, f"This takes more than {MAX_SECONDS:g} seconds; narrow the search") from error

    def _rendered(self, _rendering: "asyncio.Future[Reply]") -> None:
        self._waiting -= 1

    def _render(self, request: Request, snapshot: Snapshot) -> Reply:
        """Renders a page in the thread for pages."""
        try:
            question = PageRequest(
                request.fields, snapshot, self._message_access.messages(), self._access.shows_messages
            )
            return ROUTES[request.path](question)
        except StoreClosedError:
            return problem(503, "No page", "The broker is stopping.")
        except (MqtoolError, OSError) as error:
            _LOG.warning("page could not be rendered path=%s error=%s", request.path, error)
            return problem(500, "No page", f"The store could not be read: {error}.")
        except Exception:  # noqa: BLE001 - a bug; the browser gets an answer all the same
            _LOG.exception("page failed path=%s", request.path)
            return problem(500, "No page", "The page could not be rendered. See the log of the server for the error.")
