"""Addresses of a server: to listen on, to advertise, and to store in records."""

import ipaddress
import socket

from mqtool.errors import UsageError

_PORT_DIGITS = 5
EVERYWHERE = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - only names; nothing is bound here


def with_port(host: str, port: int) -> str:
    """Returns "host:port", with an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def listed(addresses: str) -> list[str]:
    """Splits a list of addresses at semicolons or commas."""
    return [address.strip() for address in addresses.replace(",", ";").split(";") if address.strip()]


def parse_address(address: str) -> tuple[str, int]:
    """Splits "host:port"; an IPv6 host may be in brackets.

    Raises:
        UsageError: the text has another form.
    """
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdigit() and len(port) <= _PORT_DIGITS) or int(port) > 65535:
        raise UsageError(f"address {address[:100]!r}: expected HOST:PORT")
    return require_host(host), int(port)


def parse_advertised(text: str) -> tuple[str, int | None]:
    """Splits "host" or "host:port"; the port is None if there is none. An IPv6 host with a port is in brackets.

    Raises:
        UsageError: the text has another form.
    """
    if text.endswith("]") or (text.count(":") != 1 and not text.startswith("[")):
        return text.removeprefix("[").removesuffix("]"), None
    try:
        host, port = parse_address(text)
    except UsageError:
        host, port = "", 0
    if not port:
        raise UsageError(f"--advertise: expected HOST or HOST:PORT, with a port from 1 to 65535, found {text[:100]!r}")
    return host, port


def require_host(host: str) -> str:
    """Returns a name or address.

    Raises:
        UsageError: no host can have this name; looking it up would end with an error of Python's codec.
    """
    try:
        host.encode("idna")
    except UnicodeError as error:
        raise UsageError(f"expected the name or address of a host, found {host[:100]!r}") from error
    return host


def address_of(host: str) -> str:
    """Returns the IP address of a host, in the form used in records and message ids.

    Raises:
        UsageError: the name cannot be resolved.
    """
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return socket.gethostbyname(require_host(host))
    except OSError as error:
        raise UsageError(f"{host!r} cannot be resolved, and message ids hold an address: --advertise one") from error


def own_address() -> str:
    """Returns the address of this machine under which other machines can most likely reach it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing; only selects a local address
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
