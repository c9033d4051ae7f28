"""TLS on the port that also accepts connections without TLS.

A TLS connection begins with byte 0x16, a remoting frame with 0x00 (NettyRemotingServer, TlsSystemConfig). Encryption
uses memory buffers, because the protocol is known only after the first byte; this works with every event loop.
"""

import functools
import ipaddress
import ssl
import tempfile
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from mqtool.commands import with_extra
from mqtool.errors import RemoteProtocolError, UnavailableError, UsageError

CLIENT_HELLO = 0x16
_LEEWAY, _LIFETIME = timedelta(days=1), timedelta(days=3650)
_READ_SIZE = 256 << 10


def server_context(certificate: Path, key: Path | None = None) -> ssl.SSLContext:
    """Returns the TLS context of a server with `certificate` (PEM, with the private key in the same file or in `key`).

    Raises UsageError if the files cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"{certificate}: no certificate with its key in PEM form: {error}") from error
    context.set_alpn_protocols(["h2"])  # gRPC clients require ALPN; others do not use it
    return context


@functools.cache
def self_signed_context() -> ssl.SSLContext:
    """Returns the TLS context of a server with a new self-signed certificate.

    The real broker does the same (TlsHelper, tls.test.mode.enable). The connection is encrypted, but the server is not
    authenticated: clients must be configured not to verify it. Raises UnavailableError if the package `cryptography` is
    not installed.
    """
    try:
        from cryptography import x509  # noqa: PLC0415 - imported only if needed
        from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
    except ImportError as error:
        reason = (
            "a TLS connection, but there is no certificate: give --tls-cert FILE, or "
            f"{with_extra('tls')} for a self-signed one"
        )
        raise UnavailableError(reason) from error
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "mqtool")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - _LEEWAY).not_valid_after(now + _LIFETIME)
    hosts = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.IPv4Address("127.0.0.1"))]
    builder = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
    pem = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    pem += key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with tempfile.NamedTemporaryFile() as file:  # ssl reads certificates only from files
        file.write(pem)
        file.flush()
        return server_context(Path(file.name))


class TlsPipe:
    """The server end of one TLS connection; works on buffers, without sockets."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._greeted = False

    def receive(self, data: bytes) -> bytes:
        """Decrypts bytes from the peer; afterwards `to_send` may return bytes of TLS itself.

        Raises RemoteProtocolError if the bytes are not TLS, or TLS that this end refuses.
        """
        self._incoming.write(data)
        pieces: list[bytes] = []
        try:
            if not self._greeted:
                self._object.do_handshake()
                self._greeted = True
            while piece := self._object.read(_READ_SIZE):
                pieces.append(piece)
        except ssl.SSLWantReadError:
            pass  # wait for the rest of the TLS record
        except ssl.SSLError as error:
            raise RemoteProtocolError(f"TLS: {error}") from error
        return b"".join(pieces)

    def send(self, pieces: Iterable[bytes | memoryview]) -> bytes:
        """Encrypts bytes to send."""
        for piece in pieces:
            if len(piece):
                self._object.write(piece)
        return self._outgoing.read()

    def to_send(self) -> bytes:
        """Returns pending bytes of TLS itself: its handshake, or an alert."""
        return self._outgoing.read()


class TlsDetector:
    """Detects TLS by the first byte of a connection; if it is TLS, encrypts and decrypts.

    `pipe` creates the server end of TLS, None refuses TLS; `plain` accepts connections without; `write` sends bytes of
    TLS itself.
    """

    def __init__(self, pipe: Callable[[], TlsPipe] | None, plain: bool, write: Callable[[bytes], object]) -> None:
        self._make, self._plain, self._write = pipe, plain, write
        self._pipe: TlsPipe | None = None
        self._known = False

    @property
    def is_plain(self) -> bool:
        """Whether the connection is known not to use TLS, so that this object is no longer needed."""
        return self._known and self._pipe is None

    def receive(self, data: bytes) -> bytes:
        """Decrypts what the peer sent; raises RemoteProtocolError if the kind of connection, or its TLS, is refused."""
        if not self._known:
            self._begin(data[0])
        if self._pipe is None:
            return data
        try:
            return self._pipe.receive(data)
        finally:
            if own := self._pipe.to_send():
                self._write(own)

    def send(self, pieces: list[bytes | memoryview]) -> list[bytes | memoryview]:
        """Returns the bytes to send, encrypted if the connection uses TLS."""
        return pieces if self._pipe is None else [self._pipe.send(pieces)]

    def _begin(self, first: int) -> None:
        self._known = True
        if first != CLIENT_HELLO:
            if not self._plain:
                raise RemoteProtocolError("a plain connection, but only TLS is accepted")
        elif self._make is None:
            raise RemoteProtocolError("a TLS connection, but --tls is disabled")
        else:
            try:
                self._pipe = self._make()
            except UnavailableError as error:
                raise RemoteProtocolError(str(error)) from error
