"""`mqtool serve`: a broker and name server for real clients, on a store's own files."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import sys
from contextlib import ExitStack
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mqtool.choices import Compat, TlsMode
from mqtool.cli.document import as_json
from mqtool.cli.exits import ExitCode
from mqtool.cli.options import ConfigOption, Flush, format_option, option, release_option, stated_release
from mqtool.cli.schema import TABLE, Column, OutputSchema, prints
from mqtool.commands import with_extra
from mqtool.errors import NotAStoreError, PortInUseError, UsageError

if TYPE_CHECKING:
    from mqtool.server.serve import ServeOptions
    from mqtool.store.config.broker_config import BrokerConfig


HELP = """
mqtool serve /data/store --port 10911 --namesrv-port 9876

Serve a store to unmodified RocketMQ clients: broker and name server in one process, on the same files as RocketMQ. A
real broker can take over the directory when this one has stopped, and vice versa. When it is ready, the addresses are
printed to stdout, to a program as one JSON line; everything else goes to stderr. SIGTERM and Ctrl-C shut it down
cleanly: everything acknowledged is on disk. Port 0 chooses a free port. --read-only serves a copy or a damaged store
without writing a byte to it: consumers skip what cannot be read, and their offsets are kept in memory.

impact: writes the store as a broker does; with --read-only, writes nothing
"""

NETWORK = "Network"
ACCESS = "Access"
STORE = "Store"

SERVE = OutputSchema(
    "serve",
    "where clients find the broker",
    (
        Column("broker", "string", "address of the broker", TABLE),
        Column("vip", "string", "for remoting clients with vipChannelEnabled", TABLE, optional=True),
        Column("namesrv", "string", "address of the name server", TABLE, optional=True),
        Column("grpc", "string", "separate address for gRPC clients", TABLE, optional=True),
        Column("ha", "string", "where slaves fetch the log", TABLE, optional=True),
        Column("admin", "string", "address of metrics and health", TABLE, optional=True),
        Column("store", "string", "root of the store", TABLE),
        Column("read_only", "boolean", "the store is only read", TABLE),
        Column("pid", "integer", "of the process", TABLE),
    ),
    single=True,
)


class ServeFormat(StrEnum):
    """Values of `--format`."""

    AUTO = "auto"
    JSON = "json"
    HELP = "help"


ServeFormatOption = Annotated[
    ServeFormat,
    format_option("auto: a sentence on a terminal, else json; help prints the JSON Schema of the output."),
]
StoreArgument = Annotated[
    Path | None, typer.Argument(metavar="STORE", help="Root of the store; created if missing.", show_default=False)
]
StoreOption = Annotated[Path | None, option("--store", metavar="DIR", help="The same as STORE.")]
HostOption = Annotated[str, option("--host", metavar="ADDRESS", panel=NETWORK, help="Address to listen on.")]
PortOption = Annotated[
    int,
    option(
        "--port",
        metavar="N",
        min=0,
        max=65535,
        panel=NETWORK,
        help="Port of the broker, also for gRPC clients. The VIP channel gets the port two below.",
    ),
]
GrpcPortOption = Annotated[
    int | None,
    option("--grpc-port", metavar="N", min=0, max=65535, panel=NETWORK, help="Separate port for gRPC clients."),
]
NameServerPortOption = Annotated[
    int, option("--namesrv-port", metavar="N", min=0, max=65535, panel=NETWORK, help="Port of the name server.")
]
NoNameServerOption = Annotated[
    bool, option("--no-namesrv", panel=NETWORK, help="Start no name server; namesrvAddr in --config names others.")
]
AdvertiseOption = Annotated[
    str | None,
    option(
        "--advertise",
        metavar="HOST[:PORT]",
        panel=NETWORK,
        help="Host name or address given to clients, and the broker's port if another one is mapped to it. "
        "Default: those of --host and --port.",
    ),
]
AdminPortOption = Annotated[
    int | None,
    option(
        "--admin-port", metavar="N", min=0, max=65535, panel=NETWORK, help="Port of metrics, health and the web page."
    ),
]
ReadOnlyOption = Annotated[bool, option("--read-only", panel=STORE, help="Write nothing to the store.")]
AclOption = Annotated[
    Path | None,
    option(
        "--acl",
        metavar="FILE",
        panel=ACCESS,
        help="plain_acl.yml with accounts of 4.x; imported as users if migrateAuthFromV1Enabled is set.",
    ),
]
CertificateOption = Annotated[
    Path | None,
    option("--tls-cert", metavar="FILE", panel=ACCESS, help="TLS certificate in PEM. Default: a self-signed one."),
]
KeyOption = Annotated[
    Path | None,
    option(
        "--tls-key",
        metavar="FILE",
        panel=ACCESS,
        help="TLS private key in PEM, if it is not in the file of --tls-cert.",
    ),
]
TlsOption = Annotated[
    TlsMode, option("--tls", panel=ACCESS, help="Accepted connections: plain, TLS, or both (permissive).")
]
FlushOption = Annotated[
    Flush | None,
    option("--flush", panel=STORE, help="Whether senders wait for the disk. Default: flushDiskType of --config."),
]
ReleaseOption = Annotated[
    Compat | None,
    release_option("Release whose files to write. Default: that of the store; 5.5 for a new one.", panel=STORE),
]
SetOption = Annotated[
    list[str] | None,
    option(
        "--set",
        metavar="KEY=VALUE",
        panel=STORE,
        help="Set a key of broker.conf; may be repeated. Unknown keys cause a warning.",
    ),
]
TopicOption = Annotated[
    list[str] | None,
    option(
        "--create-topic",
        "--topic",
        metavar="NAME[=TYPE]",
        panel=STORE,
        help="Create a topic on startup, unless it exists; may be repeated. "
        "TYPE: NORMAL (default), FIFO, DELAY, TRANSACTION, PRIORITY or LITE.",
    ),
]
TemporaryOption = Annotated[
    bool,
    option(
        "--temporary",
        panel=STORE,
        help="Serve a new store in a temporary directory, in memory if there is room, and delete it at the end.",
    ),
]
SeedOption = Annotated[
    Path | None,
    option(
        "--seed",
        metavar="FILE",
        panel=STORE,
        help="Store these messages on startup, unless the store has some: JSON Lines, as for `append`.",
    ),
]
TestOption = Annotated[
    bool,
    option(
        "--test",
        panel=NETWORK,
        help="For tests: let clients of the admin port (a free one by default) advance the clock and make requests "
        "fail. Needs --yes if other machines can reach it.",
    ),
]
YesOption = Annotated[bool, option("--yes", panel=NETWORK, help="Allow --test where other machines can reach it.")]

_LOG = logging.getLogger(__name__)

_YOUNG_OBJECTS = 700
"""New objects after which cycles are looked for: short searches, where short commands have few (`cli.app`)."""


@prints(SERVE)
def serve(
    store: StoreArgument = None,
    *,
    store_option: StoreOption = None,
    host: HostOption = "127.0.0.1",
    port: PortOption = 10911,
    grpc_port: GrpcPortOption = None,
    namesrv_port: NameServerPortOption = 9876,
    no_namesrv: NoNameServerOption = False,
    admin_port: AdminPortOption = None,
    test: TestOption = False,
    yes: YesOption = False,
    advertise: AdvertiseOption = None,
    read_only: ReadOnlyOption = False,
    config: ConfigOption = None,
    settings: SetOption = None,
    topics: TopicOption = None,
    temporary: TemporaryOption = False,
    seed: SeedOption = None,
    flush: FlushOption = None,
    release: ReleaseOption = None,
    acl: AclOption = None,
    tls_cert: CertificateOption = None,
    tls_key: KeyOption = None,
    tls: TlsOption = TlsMode.PERMISSIVE,
    output_format: ServeFormatOption = ServeFormat.AUTO,
) -> ExitCode:
    """Serves until it is stopped; prints one line when clients are served.

    Raises NotAStoreError if there is a file where the store should be.
    """
    from mqtool.server import serve as server
    from mqtool.server.clock import ServerClock
    from mqtool.server.scratch import new_directory

    gc.set_threshold(_YOUNG_OBJECTS)

    root = store or store_option
    if (root is None) is not temporary:
        raise typer.BadParameter("expected a store, or --temporary in its place, and not both: mqtool serve DIR")
    if read_only and (temporary or seed):
        raise UsageError("--read-only: writes nothing, so it takes neither --temporary nor --seed")
    if root is not None and root.is_file():
        raise NotAStoreError("expected a directory, found a file", root)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")

    stated = ExitStack()

    def ready(addresses: dict[str, str]) -> None:
        stated.close()
        _print(options, addresses, output_format)

    options = server.ServeOptions(
        host=host,
        port=port,
        grpc_port=grpc_port,
        name_server_port=None if no_namesrv else namesrv_port,
        advertise=advertise,
        read_only=read_only,
        config=configuration(config, settings or []),
        topics={name: kind or "NORMAL" for name, _, kind in (topic.partition("=") for topic in topics or [])},
        temporary=temporary,
        seed=seed,
        flush=server.parse_flush(flush),
        release=release,
        admin_port=0 if test and admin_port is None else admin_port,
        acl=acl,
        certificate=tls_cert,
        key=tls_key,
        tls_mode=tls,
        clock=ServerClock() if test else None,
        store=root or new_directory(),  # last, so that nothing fails between its creation and its end
    )
    try:
        if test and not yes:
            _require_local(options)
        stated.enter_context(stated_release(options.store, options.config, release, state=_LOG.info))
        server.run(options, ready)
    except PortInUseError as error:
        _name_port(options, error)
        raise
    finally:
        if temporary:
            shutil.rmtree(options.store, ignore_errors=True)
    return ExitCode.OK


def _require_local(options: ServeOptions) -> None:
    """Raises UsageError if other machines can reach the server."""
    if not options.is_local:
        hosts = f"--host {options.host}" + (f" --advertise {options.advertise}" if options.advertise else "")
        raise UsageError(f"--test: expected addresses of this machine only, found {hosts}; add --yes to allow it")


def _name_port(options: ServeOptions, error: PortInUseError) -> None:
    """Raises UsageError with the option that chooses another port, if one does."""
    ports = {
        "--port": options.port,
        "--namesrv-port": options.name_server_port,
        "--grpc-port": options.grpc_port,
        "--admin-port": options.admin_port,
    }
    for name, number in ports.items():
        if number == error.port:
            raise UsageError(f"{error}; free it, or choose another with {name}") from error


def _print(options: ServeOptions, addresses: dict[str, str], output_format: ServeFormat) -> None:
    """Prints where clients are served: a sentence at a terminal, JSON elsewhere."""
    shown = {**addresses, "store": str(options.store), "read_only": options.read_only, "pid": os.getpid()}
    is_read = output_format is ServeFormat.AUTO and sys.stdout.isatty()
    sys.stdout.buffer.write(
        _sentence(addresses, has_acl=options.acl is not None).encode()
        if is_read
        else as_json(SERVE, shown, ok=True, indent=False)
    )
    sys.stdout.buffer.flush()


def _sentence(addresses: dict[str, str], *, has_acl: bool) -> str:
    """Returns the addresses for a person at a terminal, and why gRPC is off if it is."""
    why = "the accounts of --acl are for remoting clients only" if has_acl else ""
    if not why and find_spec("hpack") is None:
        why = with_extra("serve")
    names = {"namesrv": "name server", "broker": "broker" if why else "broker and gRPC", "grpc": "gRPC"}
    names |= {"ha": "slaves", "admin": "admin page"}
    shown = ", ".join(f"{words} {addresses[name]}" for name, words in names.items() if name in addresses)
    off = f"gRPC is off: {why}\n" if why else ""
    return f"Ready. {shown[:1].upper()}{shown[1:]} (Ctrl-C stops)\n{off}"


def configuration(file: Path | None, settings: list[str]) -> BrokerConfig:
    """Returns the keys of --config, overridden by those of --set; warns of unknown keys of --set.

    The option --config has reported its own unknown keys already.
    """
    from mqtool.store.config import broker_config
    from mqtool.store.config.broker_config import BrokerConfig
    from mqtool.store.config.broker_keys import unread_keys

    config = broker_config.load(file)
    given = {}
    for pair in settings:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"--set: expected KEY=VALUE, found {pair!r}")
        given[key.strip()] = value.strip()
    for unread in unread_keys(given):
        _LOG.warning("--set: %s", unread)
    for wrong in broker_config.misread(given):
        raise UsageError(f"--set {wrong}")
    if not given:
        return config
    return BrokerConfig({**config.values, **given}, config.directory, config.source or "--set")
