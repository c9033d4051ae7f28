"""What `mqtool serve` does."""

import logging
import os
import sys
from pathlib import Path
from typing import BinaryIO, NamedTuple

from mqtool.cli.document import as_json
from mqtool.cli.serve import SERVE
from mqtool.errors import NotAStoreError, UsageError
from mqtool.server import serve
from mqtool.server.net.tls import TlsMode
from mqtool.server.serve import ServeOptions
from mqtool.store import broker_config
from mqtool.store.broker_config import BrokerConfig
from mqtool.store.broker_keys import unknown_keys

_LOG = logging.getLogger(__name__)


class Request(NamedTuple):
    """The options of one run."""

    store: Path
    host: str
    port: int
    name_server_port: int | None
    admin_port: int | None
    advertise: str | None
    read_only: bool
    config: Path | None
    settings: list[str]
    flush: str | None
    acl: Path | None
    certificate: Path | None
    key: Path | None
    tls: str


def run(request: Request, out: BinaryIO) -> None:
    """Serves until it is told to stop; prints one line when clients are served.

    Raises:
        NotAStoreError: there is a file where the store should be.
    """
    if request.store.is_file():
        raise NotAStoreError("expected a directory, found a file", request.store)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")

    def ready(addresses: dict[str, str]) -> None:
        shown = {**addresses, "store": str(request.store), "read_only": request.read_only, "pid": os.getpid()}
        out.write(as_json(SERVE, shown, ok=True, indent=False))
        out.flush()

    serve.run(
        ServeOptions(
            request.store,
            request.host,
            request.port,
            request.name_server_port,
            request.advertise,
            request.read_only,
            configuration(request),
            serve.parse_flush(request.flush),
            request.admin_port,
            request.acl,
            request.certificate,
            request.key,
            TlsMode[request.tls.upper()],
        ),
        ready,
    )


def configuration(request: Request) -> BrokerConfig:
    """Returns the keys of --config, then those of --set; warns of keys that no broker knows."""
    config = broker_config.load(request.config)
    given = {}
    for pair in request.settings:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"--set: expected KEY=VALUE, found {pair!r}")
        given[key.strip()] = value.strip()
    for unknown in unknown_keys([*config.values, *given]):
        source = "--set" if unknown.key in given else config.source
        _LOG.warning("%s: %s", source, unknown)
    if not given:
        return config
    return BrokerConfig({**config.values, **given}, config.directory, config.source or "--set")
