"""TLS and plain connections on one port, with the standard library as the peer."""

import asyncio
import contextlib
import re
import shutil
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mqtool.choices import TlsMode
from mqtool.commands import with_extra
from mqtool.errors import UnavailableError, UsageError
from mqtool.protocol import Command
from mqtool.server.net.connections import Connection, Listener
from mqtool.server.net.peer import Peer
from mqtool.server.net.tls import TlsPipe, self_signed_context, server_context
from mqtool.server.serve import ServeOptions, Server


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    if not shutil.which("openssl"):
        pytest.skip("no openssl to make a certificate with")
    directory = tmp_path_factory.mktemp("tls")
    pair = directory / "certificate.pem", directory / "key.pem"
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
            "-keyout",
            str(pair[1]),
            "-out",
            str(pair[0]),
        ],
        check=True,
        capture_output=True,
    )
    return pair


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Any:
    factory = asyncio.new_event_loop if request.param == "asyncio" else pytest.importorskip("uvloop").new_event_loop

    def runner(main: Any) -> Any:
        with asyncio.Runner(loop_factory=factory) as loop:
            return loop.run(asyncio.wait_for(main, 60))

    return runner


def trusting() -> ssl.SSLContext:
    """As real clients are by default: whoever answers is believed."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def echo(command: Command, _peer: Peer) -> Command:
    return command.reply(0, None, {}, command.body)


@contextlib.asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[Listener]:
    listener = Listener("127.0.0.1", 0, {10: echo}, **options)
    await listener.start()
    try:
        yield listener
    finally:
        await listener.stop(0.2)


async def ask(listener: Listener, tls: ssl.SSLContext | None, body: bytes = b"body") -> bytes:
    connection = await Connection.open(listener.address, tls=tls)
    try:
        return bytes((await connection.call(Command(10, body=body), 20)).body)
    finally:
        connection.close()


@pytest.mark.parametrize("size", [4, 3 << 20])
def test_one_port_serves_both_kinds(run, certificate, size):
    async def main() -> list[bytes]:
        async with serving(tls=server_context(*certificate)) as listener:
            return [await ask(listener, tls, bytes(size)) for tls in (trusting(), None)]

    assert run(main()) == [bytes(size), bytes(size)]


def test_plain_connections_are_closed_where_only_tls_is_taken(run, certificate):
    async def main() -> bytes:
        async with serving(tls=server_context(*certificate), tls_mode=TlsMode.ENFORCING) as listener:
            with pytest.raises(ConnectionError):
                await ask(listener, None)
            return await ask(listener, trusting())

    assert run(main()) == b"body"


def test_tls_alone_without_a_certificate_takes_no_connection_and_the_log_says_why(run, caplog):
    async def main() -> None:
        async with serving(tls_mode=TlsMode.ENFORCING) as listener:
            for tls in (trusting(), None):
                with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                    await ask(listener, tls)

    caplog.set_level("INFO")
    run(main())
    assert "a TLS connection, but --tls is disabled" in caplog.text
    assert "a plain connection, but only TLS is accepted" in caplog.text


@pytest.mark.parametrize("mode", [TlsMode.DISABLED, None], ids=["disabled", "no-certificate"])
def test_tls_connections_are_closed_where_none_is_taken(run, certificate, mode):
    async def main() -> bytes:
        options = {} if mode is None else {"tls": server_context(*certificate), "tls_mode": mode}
        async with serving(**options) as listener:
            with pytest.raises(ConnectionError):
                await ask(listener, trusting())
            return await ask(listener, None)

    assert run(main()) == b"body"


def test_a_broken_greeting_ends_its_connection_and_no_other(run, certificate):
    async def main() -> bytes:
        async with serving(tls=server_context(*certificate)) as listener:
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            writer.write(b"\x16\x03\x01\x00\x05junk!" * 50)
            with contextlib.suppress(ConnectionError):
                await reader.read()
            writer.close()
            return await ask(listener, trusting())

    assert run(main()) == b"body"


def test_a_certificate_that_is_none_is_named(tmp_path):
    (tmp_path / "certificate.pem").write_text("none", "utf-8")
    with pytest.raises(UsageError, match=r"certificate\.pem: no certificate"):
        server_context(tmp_path / "certificate.pem")


def test_without_a_certificate_one_is_made_and_both_kinds_are_served(run):
    pytest.importorskip("cryptography")

    async def main() -> list[bytes]:
        async with serving(tls=self_signed_context) as listener:
            return [await ask(listener, tls) for tls in (trusting(), None)]

    assert run(main()) == [b"body", b"body"]


def test_no_certificate_is_made_without_the_package_for_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(UnavailableError, match=re.escape(f"--tls-cert FILE, or {with_extra('tls')}")):
        self_signed_context.__wrapped__()  # not the one that another test made


def test_pieces_of_no_bytes_are_left_out_of_what_is_encrypted(certificate):
    server = TlsPipe(server_context(*certificate))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting().wrap_bio(incoming, outgoing)
    while True:
        try:
            client.do_handshake()
        except ssl.SSLWantReadError:
            server.receive(outgoing.read())
            incoming.write(server.to_send())
        else:
            break
    server.receive(outgoing.read())
    incoming.write(server.send([b"one", b"", memoryview(b""), memoryview(b"two")]))
    assert client.read(100) + client.read(100) == b"onetwo"
    assert server.send([b""]) == b""


def test_a_server_takes_tls_with_its_defaults(tmp_path):
    pytest.importorskip("cryptography")

    async def main() -> int:
        async with Server(ServeOptions(tmp_path / "store")) as server:
            connection = await Connection.open(server.addresses["broker"], tls=trusting())
            try:
                return (await connection.call(Command(28), 20)).code
            finally:
                connection.close()

    assert asyncio.run(main()) == 0


def test_a_tls_connection_without_a_certificate_is_closed_with_advice(run, caplog):
    def none() -> ssl.SSLContext:
        raise UnavailableError("give --tls-cert FILE")

    async def main() -> bytes:
        async with serving(tls=none) as listener:
            with pytest.raises(ConnectionError):
                await ask(listener, trusting())
            return await ask(listener, None)

    caplog.set_level("INFO")
    assert run(main()) == b"body"
    assert "--tls-cert" in caplog.text


@pytest.mark.parametrize(
    ("first", "advice"),
    [(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "mqproxy"), (b"GET / HTTP/1.1\r\n\r\n", "--admin-port")],
    ids=["http2", "http1"],
)
def test_a_client_of_another_protocol_is_turned_away_with_advice_once(run, caplog, first, advice):
    async def main() -> None:
        async with serving() as listener:
            for _ in range(2):
                reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
                writer.write(first)
                assert await reader.read() == b""
                writer.close()

    caplog.set_level("INFO")
    run(main())
    loud = [one for one in caplog.records if one.levelname == "WARNING" and advice in one.getMessage()]
    assert len(loud) == 1
