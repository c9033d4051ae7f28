"""Serve: starts and stops engine, broker, name server and listeners in one process.

    async with Server(ServeOptions(store)) as server:
        print(server.addresses)

Docs page: docs/serve.md.
"""

import asyncio
import gc
import ipaddress
import logging
import shutil
import signal
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from msgspec import Struct, field
from msgspec.structs import force_setattr, replace

from mqtool.choices import Compat, TlsMode
from mqtool.commands import with_extra
from mqtool.engine import FlushMode, MessageStore, StoreOptions, open_store, options_from_config
from mqtool.engine.retention.rules import policy_from_config
from mqtool.engine.start.detect import options_for, options_of_new_store
from mqtool.errors import NotAStoreError, UsageError
from mqtool.formats.hosts import Host
from mqtool.formats.release import ON_THE_WIRE, Release
from mqtool.protocol.command import Command
from mqtool.protocol.frames import ForeignProtocolError
from mqtool.server.admin.endpoints import Endpoints
from mqtool.server.admin.port import AdminHttp
from mqtool.server.admin.site import Access, Site
from mqtool.server.auth.admin import AuthAdmin
from mqtool.server.auth.guard import Auth, signing
from mqtool.server.auth.tables import open_tables, options_of, own_user
from mqtool.server.broker import service
from mqtool.server.broker.broker import Broker, host_of
from mqtool.server.broker.clients import Clients
from mqtool.server.broker.config import BrokerSettings
from mqtool.server.broker.messages import ReadOnlyMessages
from mqtool.server.broker.service import BrokerService, Registration, registration_of
from mqtool.server.broker.topics import typed_topic
from mqtool.server.clock import MovedFiles, ServerClock
from mqtool.server.controls import Controls
from mqtool.server.faults import Faults
from mqtool.server.namesrv import NameServer
from mqtool.server.net import acl as acl_config
from mqtool.server.net import loop_factory
from mqtool.server.net.acl import Acl
from mqtool.server.net.connections import (
    EVERYWHERE,
    Listener,
    address_of,
    listed,
    own_address,
    parse_advertised,
    with_port,
)
from mqtool.server.net.peer import Answer, Endpoint, Handler, OtherProtocol, Peer, awaited, not_supported
from mqtool.server.net.tls import self_signed_context, server_context
from mqtool.server.replication import HaListener
from mqtool.server.routes import Registration as NearRegistration
from mqtool.store.config.broker_config import BrokerConfig
from mqtool.store.store import Store
from mqtool.store.store import open_store as open_for_reading

if TYPE_CHECKING:
    from mqtool.server.grpc.endpoint import GrpcEndpoint

_LOG = logging.getLogger(__name__)

_PAIRS = 100
"""Maximum number of free ports that are tried until the port two below is free as well."""


class ServeOptions(Struct, frozen=True):
    """Options of a server."""

    store: Path  # root of the store; created if it does not exist
    host: str = "127.0.0.1"  # address to listen on
    port: int = 0  # port of the broker, for remoting and gRPC clients; 0 selects a free one
    name_server_port: int | None = 0  # port of the name server; 0 selects a free one, None starts no name server
    # HOST or HOST:PORT under which clients reach the broker; without a host `host`, or an address of this machine, and
    # without a port that of the broker
    advertise: str | None = None
    # write nothing to the store; always true for a slave (brokerRole=SLAVE), whose log is a copy of its master's
    read_only: bool = False
    config: BrokerConfig = field(default_factory=BrokerConfig)  # keys of a broker.conf
    flush: FlushMode | None = None  # when messages are flushed to disk; None as configured
    release: Compat | None = None  # whose files to write, and how to behave; None for that of the store
    grpc_port: int | None = None  # additional port for gRPC clients; 0 selects a free one, None opens none
    # port for metrics, health checks and web pages; 0 selects a free one, None opens none
    admin_port: int | None = None
    acl: Path | None = None  # a plain_acl.yml with accounts, used or imported; None for the configured users, if any
    # certificate, key: TLS certificate and private key, PEM files; None to create a self-signed certificate for the
    # first TLS connection
    certificate: Path | None = None
    key: Path | None = None
    tls_mode: TlsMode = TlsMode.PERMISSIVE  # which connections are accepted: without TLS, with TLS, or both
    temporary: bool = False  # whether the store is deleted at the end, by the caller
    # message type by name of topics that are created at the start, unless they exist
    topics: Mapping[str, str] = field(default_factory=dict)
    seed: Path | None = None  # JSON Lines as of `mqtool append`, stored at the start if the store has no messages
    # a clock that a test advances; with it the server has `Controls`, and the admin port the test endpoints
    clock: ServerClock | None = None
    fast_sends: bool = True  # False to handle every send by the ordinary path, for tests of the fast path

    def __post_init__(self) -> None:
        """Makes a slave read-only: the broker appends to its own log only as a master (HookUtils, 4.9.7 and 5.5.0)."""
        if self.is_slave:
            force_setattr(self, "read_only", True)

    @property
    def is_slave(self) -> bool:
        """Whether the configuration is that of a slave."""
        return self.config.text("brokerRole") == "SLAVE"

    @property
    def ha_port(self) -> int | None:
        """Port on which slaves get the log; 0 selects a free one, None opens none."""
        return self.config.integer("haListenPort")

    @property
    def advertised(self) -> str:
        """The host that is advertised to clients."""
        host = parse_advertised(self.advertise)[0] if self.advertise else self.config.text("brokerIP1")
        return host or (own_address() if self.host in EVERYWHERE else self.host)

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the server."""
        return all(_is_loopback(host) for host in (self.host, self.advertised))

    @property
    def advertised_port(self) -> int | None:
        """The port of the broker that is advertised to clients, if it is not the one on which it listens."""
        return parse_advertised(self.advertise)[1] if self.advertise else None


class Server:
    """A broker with its name server. Use it as an async context manager, or call `start` and `stop`.

    `start` sets `service` and `broker`; `addresses` has "host:port" of each listener, by name.
    """

    def __init__(self, options: ServeOptions) -> None:
        """Reads accounts and certificate, or raises UsageError or ConfigFileError; starts nothing."""
        self.options = options
        self.addresses: dict[str, str] = {}
        self.name_server: NameServer | None = None
        self.broker: Broker
        self.service: BrokerService
        self._store: MessageStore | Store
        self._handlers: dict[int, Handler] = {}
        self._reopening = asyncio.Lock()
        self._faults = Faults(self._handlers, self._check)
        peers = lambda: [peer for listener in self._listeners for peer in listener.peers]  # noqa: E731
        self.controls = Controls(self._faults, peers, self._reopening)
        own = options.certificate
        self._tls = server_context(own, options.key) if own is not None else self_signed_context
        self._auth_options = options_of(options.config, options.acl)
        self._guard: Acl | Auth | None = None
        if self._auth_options is None and options.acl is not None:
            self._guard = Acl(acl_config.load(options.acl))
        self._listeners: list[Listener] = []
        self._version: int  # that of the release, which is known when the store is open
        self._port: int  # on which the broker listens
        self._registration: Registration
        self._admin: AdminHttp | None = None
        self._slaves: HaListener | None = None
        self._endpoint: GrpcEndpoint | None = None
        self._is_open = True

    async def start(self) -> None:
        """Opens the store, starts listening, registers the broker; returns when clients are served.

        Raises UsageError if an address cannot be bound, or a setting is invalid; StoreError if the store cannot be
        opened.
        """
        async with AsyncExitStack() as started:  # a start that fails stops what it has started
            messages = await self._open_all(started)
            if isinstance(self._guard, Acl):
                self._guard.since_5 = messages.options.release >= (5, 0)
            await self._listen(messages, started)
            await self._serve(messages, started)
            if self.options.admin_port is not None:
                await self._start_admin(self.options.admin_port)
            started.pop_all()

    async def reset(self) -> None:
        """Deletes the store and serves an empty one, as `reopen`; ends all faults, and sets the clock.

        Raises UsageError if the store is not temporary.
        """
        if not self.options.temporary:
            raise UsageError("a reset deletes the store, so it needs a server that was started with --temporary")

        def empty() -> None:
            shutil.rmtree(self.options.store)
            if self.options.clock is not None:
                self.options.clock.reset()

        self._faults.reset()
        await self.reopen(empty)

    async def advertise(self, address: str) -> None:
        """Gives clients another address of the broker from now on, in the form of the option `advertise`."""
        host, _ = parse_advertised(address)
        await asyncio.to_thread(address_of, host)
        await self.reopen(lambda: None, address)

    async def reopen(self, change: Callable[[], None], advertise: str | None = None) -> None:
        """Serves the store again after `change` of its files; connections stay open, and their requests wait.

        Clients stay members of their groups. From now on the broker is advertised as `advertise`, if it is given.
        Raises as `start`, and the error of `change`; only `stop` may be called then.
        """
        async with self._reopening:
            before, clients, ready = self._near_registration(), self.broker.clients, self._hold()
            try:
                await self._close_all()
                self._is_open = False
                await asyncio.get_running_loop().run_in_executor(None, change)
                if advertise is not None:
                    self.options = replace(self.options, advertise=advertise)
                    port = self.options.advertised_port or self._port
                    self.addresses["broker"] = with_port(self.options.advertised, port)
                async with AsyncExitStack() as started:
                    messages = await self._open_all(started)
                    if self.name_server is not None:
                        self.name_server.unregister(before)
                    await self._serve(messages, started, clients)
                    started.pop_all()
                self._is_open = True
            except BaseException:
                self._handlers.clear()
                raise
            finally:
                ready.set()

    def _hold(self) -> asyncio.Event:
        """Makes requests wait for the returned event; then the handlers of that time get them."""
        ready = asyncio.Event()

        async def wait(command: Command, peer: Peer) -> Answer:
            await ready.wait()
            return await awaited(self._handlers.get(command.code, not_supported)(command, peer))

        self._handlers.update(dict.fromkeys(self._handlers, wait))
        if self._endpoint is not None:
            self._endpoint.pause()
        return ready

    async def _open_all(self, started: AsyncExitStack) -> MessageStore | ReadOnlyMessages:
        """Opens the store and the tables of users."""
        loop = asyncio.get_running_loop()
        messages = await loop.run_in_executor(None, self._open)
        started.callback(self._store.close)
        started.callback(self._close_users)
        await loop.run_in_executor(None, self._open_users)
        return messages

    async def _close_all(self) -> None:
        """Ends what `_serve` has started, then closes the tables of users and the store."""
        if self._slaves is not None:
            await self._slaves.stop()
        await self._registration.close()
        await self.service.stop()
        self._close_users()
        await asyncio.get_running_loop().run_in_executor(None, self._store.close)

    def _open(self) -> MessageStore | ReadOnlyMessages:
        options = self.options
        chosen: dict[str, Any] = {"store_host": Host(address_of(options.advertised), options.port)}
        if options.flush is not None:
            chosen["flush_mode"] = options.flush
        if options.is_slave:
            _LOG.warning(
                "brokerRole=SLAVE: the store is served read-only, because its log is a copy of its master's; set "
                "brokerRole=ASYNC_MASTER to accept messages"
            )
        if options.read_only:
            self._store = open_for_reading(options.store, options.config)
            try:
                self._check_accounts(self._store.version.release)
            except UsageError:
                self._store.close()
                raise
            written_by = StoreOptions(compat=Compat(str(self._store.version.release)))
            return ReadOnlyMessages(self._store, replace(options_from_config(options.config, written_by), **chosen))
        try:
            shape = options_for(options.store, options.config, options.release, **chosen)
        except NotAStoreError:
            if not options.store.is_dir():
                raise
            # like the broker, next to whatever is there
            shape = options_of_new_store(options.store, options.config, options.release or Compat.V5_5, **chosen)
        self._check_accounts(shape.release)
        _check_replicas(options.config, shape.release)
        clock, policy = options.clock, policy_from_config(options.config)
        files = MovedFiles(clock) if clock is not None else None
        self._store = open_store(options.store, shape, policy=policy, clock=clock, files=files)
        return self._store

    def _check_accounts(self, release: Release) -> None:
        """Raises UsageError if a broker of the release checks accounts, and none are given.

        A broker of 4.9 does so with aclEnable=true (BrokerController.initialAcl); 5.5.0 has the key and ignores it.
        """
        if self._is_guarded or not self.options.config.flag("aclEnable"):
            return
        if release < (5, 0):
            raise UsageError(
                "aclEnable=true: a broker of this release checks each request against the accounts in "
                "conf/plain_acl.yml. Name that file with --acl, or set aclEnable=false to serve every client without "
                "a check"
            )
        _LOG.warning("aclEnable=true has no effect, as in 5.5; no request is checked. Name accounts with --acl")

    def _open_users(self) -> None:
        """Reads users and permissions, if requests are checked or may change them."""
        options = self._auth_options
        if options is not None:
            tables = open_tables(options, self.options.store, writable=not self.options.read_only)
            if isinstance(self._guard, Auth):
                self._guard.tables = tables
            else:
                self._guard = Auth(options, tables)

    def _close_users(self) -> None:
        if isinstance(self._guard, Auth):
            self._guard.tables.close()

    async def _listen(self, messages: MessageStore | ReadOnlyMessages, started: AsyncExitStack) -> None:
        """Starts name server and listeners, which answer when `_serve` has added their handlers."""
        options, self._version = self.options, ON_THE_WIRE[messages.options.release]
        if options.name_server_port is not None:
            started.push_async_callback((await self._start_name_server(options.name_server_port)).stop)
        started.push_async_callback(self._stop_listeners, 0)
        self._port = await self._listen_for_clients()
        if options.grpc_port is not None:
            grpc = await self._start_listener(options.grpc_port)
            self.addresses["grpc"] = with_port(options.advertised, grpc.port)

    async def _serve(
        self, messages: MessageStore | ReadOnlyMessages, started: AsyncExitStack, clients: Clients | None = None
    ) -> None:
        """Starts the broker of an open store, and registers it; `clients` are the members that its groups have."""
        options, settings = self.options, BrokerSettings(self.options.config)
        settings.values |= {
            "brokerIP1": options.advertised,
            "brokerIP2": options.config.text("brokerIP2") or options.advertised,
            "flushDiskType": messages.options.flush_mode.value,
            "listenPort": str(self._port),
            "storePathRootDir": str(options.store),
        }
        if options.read_only:
            settings.values["brokerPermission"] = "4"
        if options.seed is not None and isinstance(messages, MessageStore):
            from mqtool.ingest.seed import append_seed  # noqa: PLC0415 - its libraries are slow to import

            host = host_of(self.addresses["broker"], messages.options.store_host)
            await asyncio.to_thread(append_seed, messages, options.seed, options.topics, host)
        self.service = BrokerService(
            messages, settings, self.addresses["broker"], fast_sends=options.fast_sends, clock=options.clock
        )
        self.broker = self.service.broker
        self.controls.serve(self.service)
        if clients is not None:
            self.broker.clients.adopt(clients)
        started.push_async_callback(self.service.stop)
        await self._listen_for_slaves(settings, started)
        near = self._register if self.name_server is not None else None
        others, slaves = listed(settings.text("namesrvAddr")), self.addresses.get("ha", "")
        self._registration = Registration(self.broker, near, others, slaves, signing(own_user(options.config)))
        started.push_async_callback(self._registration.close)
        for name, kind in options.topics.items():
            config = typed_topic(name, kind)
            if self.broker.topics.get(name) is None:
                self.broker.topics.put(config)
        await self.service.start()
        self.service.tasks.spawn(self._registration.run())
        users = AuthAdmin(self._guard.tables if isinstance(self._guard, Auth) else None)
        self._handlers |= {**self.service.handlers(), **service.table((users,))}
        if self._endpoint is not None:
            self._endpoint.serve(self.service)
        if self._admin is not None:
            self._admin.serve(self.broker)
        if near is not None:
            near()

    async def _listen_for_clients(self) -> int:
        """Listens on the broker's port, which is returned, and for the VIP channel. Port 0 selects a free pair."""
        options = self.options
        attempts = _PAIRS if options.port == 0 else 1
        for left in reversed(range(attempts)):
            listener = await self._start_listener(options.port)
            advertised = options.advertised_port or listener.port
            self.addresses["broker"] = with_port(options.advertised, advertised)
            try:
                await self._start_vip(listener.port - 2)
            except UsageError as error:
                if left:
                    await self._stop_listeners(0)
                else:
                    advice = "; free the port, or choose another --port"
                    _LOG.warning("no VIP channel, so real slaves get no topics: %s%s", error, advice)
            else:
                self.addresses["vip"] = with_port(options.advertised, advertised - 2)
                break
        return listener.port

    async def _start_vip(self, port: int) -> None:
        """Listens on the port two below the broker's: for clients with vipChannelEnabled, and slaves that get topics.

        Raises UsageError if the port is taken, or is an option of the server.
        """
        options = self.options
        if port in (options.name_server_port, options.grpc_port, options.admin_port, options.ha_port):
            raise UsageError(f"port {port} is already given for another purpose")
        await self._start_listener(port)

    async def _start_listener(self, port: int) -> Listener:
        """Starts a listener of the broker; 0 selects a free port."""
        listener = self._new_listener(port)
        await listener.start()
        self._listeners.append(listener)
        return listener

    async def _stop_listeners(self, grace: float) -> None:
        """Stops the broker's listeners; waits up to `grace` seconds for requests in progress."""
        await asyncio.gather(*(listener.stop(grace) for listener in self._listeners))
        self._listeners.clear()

    async def _start_name_server(self, port: int) -> NameServer:
        options = self.options
        self.name_server = server = NameServer(
            options.host,
            port,
            guard=self._guard.check_routes if self._guard is not None else None,
            tls=self._tls,
            tls_mode=options.tls_mode,
            version=self._version,
        )
        await server.start()
        self.addresses["namesrv"] = with_port(options.advertised, server.port)
        return server

    async def _start_admin(self, port: int) -> None:
        options = self.options
        access = Access(frozenset({options.host, options.advertised}), shows_messages=not self._is_guarded)
        site = Site(self.broker, access, options.config.values)
        more: dict[str, Callable[..., Awaitable[None]]] = {"/reset": self.reset, "/advertise": self.advertise}
        endpoints = Endpoints(self.controls, access.names, more) if options.clock is not None else None
        self._admin = AdminHttp(self.broker, options.host, port, site, endpoints)
        await self._admin.start()
        self.addresses["admin"] = with_port(options.advertised, self._admin.port)

    @property
    def _is_guarded(self) -> bool:
        return self._guard is not None or self._auth_options is not None

    def _check(self, command: Command, peer: Peer) -> Answer:
        """Checks a request; returns None if it may be handled, otherwise the answer that refuses it."""
        return self._guard.check(command, peer) if self._guard is not None else None

    def _new_listener(self, port: int) -> Listener:
        """Returns a listener of the broker."""
        has_faults = self.options.clock is not None
        return Listener(
            self.options.host,
            port,
            {} if has_faults else self._handlers,
            self._faults.handle if has_faults else not_supported,
            guard=self._check if self._is_guarded and not has_faults else None,
            tls=self._tls,
            tls_mode=self.options.tls_mode,
            opened=self._opened,
            http2=self._http2,
            version=self._version,
        )

    def _http2(self, peer: Peer, endpoint: Endpoint) -> OtherProtocol | None:
        """Returns the protocol of a gRPC connection; loads its libraries for the first one."""
        if isinstance(self._guard, Acl):
            raise ForeignProtocolError(
                "a gRPC connection: the accounts of --acl are for remoting clients only; "
                "set authenticationEnabled and migrateAuthFromV1Enabled to import them"
            )
        if self._endpoint is None:
            try:
                from mqtool.server.grpc.endpoint import GrpcEndpoint  # noqa: PLC0415 - imported only if needed
            except ImportError as error:
                raise ForeignProtocolError(
                    f"a gRPC connection: to serve it, {with_extra('serve')} ({error})"
                ) from error
            faults = self._faults if self.options.clock is not None else None
            self._endpoint = GrpcEndpoint(self.service, self._handlers, self._guard, faults)
        return self._endpoint.connection(peer, endpoint)

    async def _listen_for_slaves(self, settings: BrokerSettings, started: AsyncExitStack) -> None:
        """Listens for slaves if `haListenPort` is set."""
        port = self.options.ha_port
        if port is None or not isinstance(self._store, MessageStore):
            return
        self._slaves = HaListener(self._store, self.options.host, port)
        await self._slaves.start()
        started.push_async_callback(self._slaves.stop)
        settings.values["haListenPort"] = str(self._slaves.port)
        self.addresses["ha"] = with_port(self.options.advertised, self._slaves.port)
        if self._is_guarded:
            _LOG.warning(
                "any client that can connect to port %d can read the entire log: replication does not check accounts",
                self._slaves.port,
            )

    def _opened(self, peer: Peer) -> None:
        peer.on_close(self._closed)

    def _closed(self, peer: Peer) -> None:
        self.broker.clients.forget(peer)

    def _register(self) -> None:
        """Registers the broker with the name server of this process."""
        assert self.name_server is not None
        self.name_server.register(self._near_registration())

    def _near_registration(self) -> NearRegistration:
        broker, settings = self.broker, self.broker.settings
        return NearRegistration(
            settings.text("brokerClusterName"),
            settings.text("brokerName"),
            settings.number("brokerId"),
            broker.address,
            self.addresses.get("ha", ""),
            registration_of(broker),
            acting_master=False,
        )

    async def stop(self, grace: float = 10.0) -> None:
        """Shuts down cleanly: answers requests in progress for `grace` seconds, makes tables and messages durable."""
        self._faults.clear()
        self.broker.retire()
        await self._stop_listeners(grace)
        if self._admin is not None:
            await self._admin.stop()
        if self._is_open:
            await self._close_all()
        if self.name_server is not None:
            await self.name_server.stop()
        _LOG.info("stopped store=%s", self.options.store)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.stop()


def run(options: ServeOptions, ready: Callable[[dict[str, str]], None]) -> None:
    """Serves until SIGTERM, SIGINT or SIGHUP, then shuts down cleanly; `ready` gets the addresses at the start."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_run(options, ready))


async def _run(options: ServeOptions, ready: Callable[[dict[str, str]], None]) -> None:
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # as nohup sets it
            loop.add_signal_handler(number, stopped.set)
    async with Server(options) as server:
        gc.freeze()  # these objects live as long as the server; exempt them from collections
        ready(dict(server.addresses))
        await stopped.wait()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _check_replicas(config: BrokerConfig, release: Release) -> None:
    """Raises UsageError if a broker answers a send only when slaves have the message, for which `serve` does not wait.

    Source: CommitLog.handleHA (5.5.0: inSyncReplicas counts the master), CommitLog.submitReplicaRequest (4.9.7).
    """
    if config.text("brokerRole") != "SYNC_MASTER":
        return
    replicas = (config.integer("inSyncReplicas") or 1) if release >= (5,) else 2
    if replicas > 1:
        raise UsageError(
            f"{config.source}: brokerRole=SYNC_MASTER: a broker answers a send when {replicas - 1} slave(s) have the "
            "message, serve as soon as it has stored the message itself; set brokerRole=ASYNC_MASTER to serve "
            "without waiting"
        )


def parse_flush(value: str | None) -> FlushMode | None:
    """Returns the flush mode with a name; raises UsageError if the name is invalid."""
    if value is None:
        return None
    try:
        return FlushMode[f"{value.upper()}_FLUSH"]
    except KeyError as error:
        raise UsageError(f"expected sync or async, found {value!r}") from error
