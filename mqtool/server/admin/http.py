"""HTTP requests and replies of the admin pages: one GET per connection, with limits on every part of it."""

import ipaddress
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote

from msgspec import Struct

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


class BadRequestError(Exception):
    """A request that is answered with an error page.

    Attributes:
        status: HTTP status of the reply.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Request(Struct, frozen=True):
    """A request: method, path, query fields, and the Host header."""

    method: str
    path: str
    fields: dict[str, str]
    host: str | None


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
    """Parses the head of a request.

    Raises:
        BadRequestError: the head is not a valid request, or exceeds a limit.
    """
    first, *lines = head.decode("latin-1").split("\r\n")
    reason = first.split(" ")
    if len(reason) != 3 or not reason[2].startswith("HTTP/1."):
        raise BadRequestError(400, "expected METHOD TARGET HTTP/1.1")
    if len(reason[1]) > LONGEST_TARGET:
        raise BadRequestError(414, f"expected a target of at most {LONGEST_TARGET} bytes, found {len(reason[1])}")
    path, _, query = reason[1].partition("?")
    hosts = [value.strip() for name, _, value in (line.partition(":") for line in lines) if name.lower() == "host"]
    if len(hosts) > 1:
        raise BadRequestError(400, "expected one Host, found several")
    return Request(reason[0], unquote(path), _fields(query), hosts[0] if hosts else None)


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
    """Whether the Host header of a request names this server.

    This prevents DNS rebinding: a foreign site whose name resolves to this server's address sends its own name here.

    Args:
        host: the Host header.
        names: names under which this server is reached; IP addresses and localhost are always accepted.
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
