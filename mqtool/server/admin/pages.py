"""Renders the admin pages: each function reads what the query asks for, and fills a template.

All functions run in the thread for pages.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from mqtool import __version__
from mqtool.pages import templates
from mqtool.server.admin import content, http, message
from mqtool.server.admin.http import Reply
from mqtool.server.admin.lookup import MAX_HITS, look_up
from mqtool.server.admin.message_access import Messages
from mqtool.server.admin.snapshot import Snapshot

if TYPE_CHECKING:
    from jinja2 import Environment

T = TypeVar("T")

ROWS = 100
"""Maximum number of rows on one page of a list."""
_FIRST = 15
"""Maximum number of rows of a list on the overview page."""


class PageRequest(NamedTuple):
    """The input of a page.

    Attributes:
        fields: query fields.
        snapshot, messages: the broker's tables and its store.
        shows_messages: whether messages may be shown.
    """

    fields: Mapping[str, str]
    snapshot: Snapshot
    messages: Messages
    shows_messages: bool


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
        reason = "This broker asks for accounts, and this page has none: it shows no messages."
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
    return Reply(200, http.CSS, _environment().get_template("style.css").render())


def _part(rows: Sequence[T], fields: Mapping[str, str]) -> Part:
    last = max(1, -(-len(rows) // ROWS))
    page = fields.get("page", "")
    number = min(int(page) if page.isascii() and page.isdigit() and len(page) < 10 else 1, last) or 1
    return Part(rows[(number - 1) * ROWS : number * ROWS], number, last, len(rows))


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
            version=__version__,
            **values,
        )
    )
    return Reply(status, http.HTML, text)


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
