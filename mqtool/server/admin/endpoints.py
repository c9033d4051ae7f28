"""The test endpoints of the admin port: `Controls` over HTTP, for tests in any language.

    curl -X POST 'localhost:8080/clock/advance?hours=2'
    curl -d '{"hours": 2}' localhost:8080/clock/advance

Parameters are those of the function, as fields of the query or of a JSON object in the body. The answer is the result
as JSON, or a line of text that says what is wrong.
"""

import asyncio
import inspect
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any

import msgspec

from mqtool.errors import MqtoolError
from mqtool.server.admin.site import BadRequestError, Request, is_own_host, parse
from mqtool.server.controls import Controls
from mqtool.server.net.peer import awaited

_BODY_S = 10.0
_MAX_BODY = 1 << 20
_MAX_DIGITS = 9
_DEFAULT = {inspect.Parameter.empty: msgspec.NODEFAULT}


class _Route(msgspec.Struct, frozen=True):
    """A function at a path, whose parts in braces are parameters too."""

    method: str
    path: str
    function: Callable[..., Any]

    def match(self, path: str) -> dict[str, str] | None:
        """Returns the parameters in a path; None if it is another path."""
        matched = re.fullmatch(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", self.path), path)
        return matched.groupdict() if matched else None

    async def call(self, parameters: dict[str, Any]) -> object:
        """Returns the result of the function; raises msgspec.ValidationError if a parameter is wrong."""
        declared = inspect.signature(self.function, eval_str=True).parameters.values()
        fields = [(item.name, item.annotation, _DEFAULT.get(item.default, item.default)) for item in declared]
        struct = msgspec.defstruct("Parameters", fields, forbid_unknown_fields=True, kw_only=True)
        return await awaited(self.function(**msgspec.structs.asdict(msgspec.convert(parameters, struct, strict=False))))


class Endpoints:
    """The test endpoints of one server."""

    def __init__(
        self, controls: Controls, names: Iterable[str], more: Mapping[str, Callable[..., Awaitable[None]]]
    ) -> None:
        """Requests must name the server by one of `names`, an IP address or localhost.

        `more` has functions for POST by path.
        """
        self._names = frozenset(names)
        self._routes = (
            _Route("GET", "/clock", controls.now),
            _Route("POST", "/clock/advance", controls.advance),
            _Route("POST", "/faults", controls.fail),
            _Route("GET", "/faults", controls.faults),
            _Route("DELETE", "/faults", controls.clear_faults),
            _Route("POST", "/pause", controls.pause),
            _Route("POST", "/resume", controls.resume),
            _Route("POST", "/delay", controls.delay),
            _Route("POST", "/connections/drop", controls.drop_connections),
            _Route("GET", "/topics/{topic}/messages", controls.rows),
            _Route("GET", "/groups/{group}/offsets", controls.offsets),
            _Route("GET", "/requests", controls.requests),
            *(_Route("POST", path, function) for path, function in more.items()),
        )

    async def answer(self, head: bytes, reader: asyncio.StreamReader) -> bytes | None:
        """Returns the answer to a request, whose body is read here; None if no endpoint has its path."""
        try:
            request = parse(head)
            routes = {route.method: route for route in self._routes if route.match(request.path) is not None}
            if not routes and request.method in ("GET", "HEAD"):
                return None
            self._check(request, routes)
            route = routes[request.method]
            place = route.match(request.path) or {}
            result = await route.call({**request.fields, **await _body(request.headers, reader), **place})
            return encoded(200, msgspec.json.encode(result) + b"\n", "application/json")
        except BadRequestError as error:
            return encoded(error.status, f"{error}\n".encode())
        except (MqtoolError, msgspec.MsgspecError, ValueError, OverflowError, RecursionError) as error:
            return encoded(400, f"{error}\n".encode())

    def _check(self, request: Request, methods: Collection[str]) -> None:
        """Raises BadRequestError for another path or method, or if a page of another site may have sent the request."""
        if not methods:
            paths = ", ".join(dict.fromkeys(route.path for route in self._routes))
            raise BadRequestError(404, f"expected one of {paths}, found {request.path}")
        if request.method not in methods:
            raise BadRequestError(405, f"expected {' or '.join(methods)}, found {request.method}")
        if "origin" in request.headers or not is_own_host(request.headers.get("host"), self._names):
            raise BadRequestError(
                403, "test endpoints answer no web pages, and no host but localhost, --advertise and IP addresses"
            )


async def _body(headers: Mapping[str, str], reader: asyncio.StreamReader) -> dict[str, Any]:
    size = headers.get("content-length", "0")
    if "transfer-encoding" in headers or not size.isdecimal() or len(size) > _MAX_DIGITS:
        raise BadRequestError(411, f"expected the size of the body as Content-Length, of at most {_MAX_DIGITS} digits")
    length = int(size)
    if length > _MAX_BODY:
        raise BadRequestError(413, f"expected a body of at most {_MAX_BODY} bytes, found {length}")
    async with asyncio.timeout(_BODY_S):
        data = await reader.readexactly(length)
    return msgspec.json.decode(data, type=dict[str, Any]) if data else {}


def encoded(status: int, body: bytes, kind: str = "text/plain; charset=utf-8", *, with_body: bool = True) -> bytes:
    """Returns an HTTP response without headers for browsers; `kind` is its content type."""
    head = f"HTTP/1.1 {status} \r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + (body if with_body else b"")
