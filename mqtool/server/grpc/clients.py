"""Clients of the gRPC server: their settings, their telemetry streams, and their entries in the broker's client table.

Source: ClientActivity, GrpcClientSettingsManager, GrpcClientChannel (rocketmq-proxy 5.5.0).
"""

import asyncio
import contextlib
import json
from collections.abc import Callable
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError

from mqtool.engine.clock import SystemClock
from mqtool.errors import FormatError
from mqtool.formats import java
from mqtool.formats.config_files import GroupConfig
from mqtool.protocol.command import Command, RequestCode, ResponseCode
from mqtool.protocol.rocketmq_v2 import definition as d
from mqtool.protocol.rocketmq_v2 import service as s
from mqtool.server.broker.attributes import LITE_QUOTA
from mqtool.server.broker.pop.lite_subscriptions import bind_topic
from mqtool.server.grpc.core import OK, Core, StatusError, refused
from mqtool.server.grpc.messages import MAX_BODY, MAX_LITE_BYTES, check_lite_topic, tag_filter
from mqtool.server.net.http2 import Call, GrpcError, GrpcStatus
from mqtool.server.net.peer import Endpoint, Peer

MAX_CLIENTS = 20_000
"""Maximum number of clients whose settings are kept; a new one replaces the one that was inactive for longest."""

MAX_SETTINGS = 1 << 20
"""Maximum size of one client's settings in bytes."""

MAX_ALL_SETTINGS = 64 << 20
"""Maximum size of all clients' settings in bytes; above it, the client that was inactive for longest is removed."""

SETTINGS_PATIENCE = 1.0
"""Seconds for which a call waits for settings that have not arrived yet."""

BATCH_SIZE = 32
POLL_S = 20
DEFAULT_LITE_QUOTA = 2000
RETRY_STEPS_S = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
"""Delays in seconds before each redelivery, for groups without their own retry policy (CustomizedRetryPolicy)."""

_CONSUMERS = frozenset(
    {d.PUSH_CONSUMER, d.SIMPLE_CONSUMER, d.PULL_CONSUMER, d.LITE_PUSH_CONSUMER, d.LITE_SIMPLE_CONSUMER}
)
_LITE = frozenset({d.LITE_PUSH_CONSUMER, d.LITE_SIMPLE_CONSUMER})
_PUSH = frozenset({d.PUSH_CONSUMER, d.LITE_PUSH_CONSUMER})
_LANGUAGES = {d.DOT_NET: "DOTNET", d.GOLANG: "GO", d.OBJECTIVE_C: "OTHER", d.DART: "OTHER", d.KOTLIN: "OTHER"}

Deliver = Callable[["Client", Command], None]
Check = Callable[[Call, Any], None]
"""Checks whether a client may send a request in a call; raises StatusError if not."""


class ClientPeer(Peer):
    """A gRPC client as a peer in the broker's tables; requests to it become commands on its telemetry stream."""

    __slots__ = ("client",)

    def __init__(self, client: "Client") -> None:
        super().__init__(_NOWHERE)
        self.client = client

    def send(self, command: Command) -> None:
        """Passes a one-way request of the broker on to the client."""
        self.client.deliver(self.client, command)

    async def request(self, command: Command, timeout: float = 10.0) -> Command:  # noqa: ARG002
        """Always raises ConnectionError, because the gRPC protocol has no such requests."""
        raise ConnectionError(f"{self.address}: a gRPC client cannot receive request {command.code}")


_NOWHERE = Endpoint({})
_WATCHED = "grpc_clients_leave"
"""Attribute of a connection: its end is reported to `Clients`."""


class Client:
    """A client, identified by its client id (header x-mq-client-id).

    `settings` are those that it sent, completed by the server; `size` is theirs as sent, in bytes. `connection` is that
    of its last telemetry stream, if this ended while the connection was open. `version`, of its subscriptions,
    increases with each change.
    """

    def __init__(self, client_id: str, deliver: Deliver) -> None:
        self.client_id, self.deliver = client_id, deliver
        self.settings = d.Settings()
        self.stream: Telemetry | None = None
        self.connection: Peer | None = None
        self.version = self.size = 0
        self.peer = ClientPeer(self)

    @property
    def is_consumer(self) -> bool:
        """Whether the client is a consumer."""
        return self.settings.client_type in _CONSUMERS

    @property
    def is_lite(self) -> bool:
        """Whether the client consumes lite topics."""
        return self.settings.client_type in _LITE

    @property
    def group(self) -> str:
        """Consumer group of the client; "" for a producer."""
        return self.settings.subscription.group.name

    @property
    def language(self) -> str:
        """Language of the client, as the broker names it."""
        language = self.settings.user_agent.language
        return _LANGUAGES.get(language) or (_name_in(d.Language, language) if language else "OTHER")


class Clients:
    """All connected gRPC clients, by client id. Must be used in the event loop's thread."""

    def __init__(self, core: Core, deliver: Deliver, check: Check | None = None) -> None:
        """Creates an empty table; `deliver` handles the broker's requests to clients, `check` checks their commands."""
        self._core, self._deliver, self.check = core, deliver, check
        self.table: dict[str, Client] = {}
        self._has_settings = asyncio.Event()
        self._bytes = 0
        self.on_leave: list[Callable[[Client], None]] = []

    def of(self, call: Call) -> Client | None:
        """Returns the client of a call; None if it has sent no settings."""
        client = self.table.get(call.header("x-mq-client-id"))
        if client is not None:
            self.table[client.client_id] = self.table.pop(client.client_id)  # moved to the end: most recently active
        return client

    def _known(self, call: Call) -> Client:
        """Returns the client of a call; raises StatusError if it has sent no settings."""
        client = self.of(call)
        if client is None:
            raise StatusError(d.UNRECOGNIZED_CLIENT_TYPE, "cannot find client settings for this client")
        return client

    async def wait_for_settings(self, call: Call) -> Client | None:
        """Returns the client of a call, waiting up to a second for its settings; None if it sends none.

        The Python client sends settings on one stream and receives messages on another without waiting for the answer.
        """
        end = SystemClock.monotonic() + SETTINGS_PATIENCE
        while (client := self.of(call)) is None and (rest := end - SystemClock.monotonic()) > 0:
            self._has_settings.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._has_settings.wait(), rest)
        return client

    def telemetry(self, call: Call) -> "Telemetry":
        """Opens a telemetry stream."""
        client_id = call.header("x-mq-client-id")
        if not client_id:
            raise GrpcError(GrpcStatus.INVALID_ARGUMENT, "cannot find client id in header")
        return Telemetry(self, call, client_id)

    # -- settings ------------------------------------------------------------------------------------------------

    def apply_settings(self, stream: "Telemetry", settings: d.Settings) -> d.Settings:
        """Stores settings and returns them as completed by the server; raises GrpcError if they are invalid."""
        self._check(settings)
        client = self.table.pop(stream.client_id, None) or Client(stream.client_id, self._deliver)
        size = settings.ByteSize()
        self._bytes += size - client.size
        client.size = size
        while self.table and (len(self.table) >= MAX_CLIENTS or self._bytes > MAX_ALL_SETTINGS):
            self.leave(next(iter(self.table.values())))
        self.table[client.client_id] = client
        self._has_settings.set()
        client.stream = stream
        client.peer.address, client.peer.host, client.peer.port = (
            stream.call.peer.address,
            stream.call.peer.host,
            stream.call.peer.port,
        )
        client.settings = merged = d.Settings()
        merged.CopyFrom(settings)
        self.fill(merged)
        client.version += 1
        self.register(client)
        return merged

    def _check(self, settings: d.Settings) -> None:
        prefix = "process client telemetryCommand failed. "
        if settings.ByteSize() > MAX_SETTINGS:
            raise GrpcError(GrpcStatus.INVALID_ARGUMENT, f"{prefix}settings of more than {MAX_SETTINGS} bytes")
        if settings.HasField("subscription"):
            name = settings.subscription.group.name
            try:
                self._core.group(settings.subscription.group)
            except StatusError as error:
                raise GrpcError(GrpcStatus.INVALID_ARGUMENT, prefix + error.message) from error
            if settings.client_type not in _CONSUMERS:
                kind = _name_in(d.ClientType, settings.client_type)
                raise GrpcError(GrpcStatus.INTERNAL, f"{prefix}Client type is not consumer, type: {kind}")
            for subscription in settings.subscription.subscriptions:
                try:
                    tag_filter(subscription.expression)
                except StatusError as error:
                    raise GrpcError(GrpcStatus.INVALID_ARGUMENT, f"{prefix}expression format is not correct") from error
            if settings.client_type in _LITE and not bind_topic(self._core.group_config(name)):
                raise GrpcError(GrpcStatus.INVALID_ARGUMENT, f"{prefix}regular group cannot use LITE mode: {name}")
        elif settings.HasField("publishing"):
            try:
                for topic in settings.publishing.topics:
                    self._core.topic(topic)
            except StatusError as error:
                raise GrpcError(GrpcStatus.INVALID_ARGUMENT, prefix + error.message) from error
            if settings.client_type not in d.ClientType.values():  # protobuf's words when the proxy copies the settings
                raise GrpcError(GrpcStatus.INTERNAL, f"{prefix}Can't get the number of an unknown enum value.")
        else:
            message = "there is no publishing or subscription data in settings"
            raise GrpcError(GrpcStatus.INVALID_ARGUMENT, message)

    def fill(self, settings: d.Settings) -> None:
        """Completes the settings of a client with the values that the server determines."""
        settings.metric.on = False
        if settings.HasField("publishing"):
            settings.publishing.max_body_size = MAX_BODY
            settings.publishing.validate_message_type = True
            backoff = settings.backoff_policy
            backoff.max_attempts = 3
            backoff.exponential_backoff.initial.nanos = 10_000_000
            backoff.exponential_backoff.max.seconds = 1
            backoff.exponential_backoff.multiplier = 2
            return
        subscription = settings.subscription
        config = self._core.group_config(subscription.group.name)
        subscription.fifo = bool(config.consume_message_orderly)
        subscription.receive_batch_size = BATCH_SIZE
        subscription.long_polling_timeout.seconds = POLL_S
        subscription.lite_subscription_quota = _number((config.attributes or {}).get(LITE_QUOTA), DEFAULT_LITE_QUOTA)
        subscription.max_lite_topic_size = MAX_LITE_BYTES
        settings.backoff_policy.CopyFrom(retry_policy(config))

    # -- the broker's tables -------------------------------------------------------------------------------------

    def register(self, client: Client) -> None:
        """Adds a client to the broker's tables, or renews its entry, like a heartbeat of a remoting client."""
        settings = client.settings
        document: dict[str, object] = {"clientID": client.client_id}
        if client.is_consumer:
            kind = "CONSUME_PASSIVELY" if settings.client_type in _PUSH else "CONSUME_ACTIVELY"
            document["consumerDataSet"] = [
                {
                    "groupName": client.group,
                    "consumeType": kind,
                    "messageModel": "LITE_SELECTIVE" if settings.client_type in _LITE else "CLUSTERING",
                    "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                    "subscriptionDataSet": [
                        {
                            "topic": item.topic.name,
                            "subString": item.expression.expression or "*",
                            "expressionType": "SQL92" if item.expression.type == d.SQL else "TAG",
                            "subVersion": client.version,
                        }
                        for item in settings.subscription.subscriptions
                    ],
                }
            ]
        else:
            document["producerDataSet"] = [{"groupName": item.name} for item in settings.publishing.topics]
        body = json.dumps(document).encode()
        self._core.start(RequestCode.HEART_BEAT, {}, client.peer, body, client.language)

    def add_topic(self, client: Client, topic: str) -> None:
        """Registers a client as producer of a topic that its settings lack, so that its transactions can be checked."""
        members = self._core.broker.clients.producers.get(topic, {})
        if client.peer not in members:
            self._core.broker.clients.register_producer(
                topic, self._core.broker.clients.client_of(client.peer, client.client_id, client.language, 0)
            )

    def heartbeat(self, call: Call, request: s.HeartbeatRequest) -> bytes:
        """Handles the RPC Heartbeat: renews a client's entry."""
        client = self._known(call)
        _check_kind(client)
        if client.is_consumer:
            self._core.group(request.group)
        self.register(client)
        return s.HeartbeatResponse(status=OK).SerializeToString()

    def terminate(self, call: Call, request: s.NotifyClientTerminationRequest) -> bytes:
        """Handles the RPC NotifyClientTermination: removes a client."""
        client = self._known(call)
        self.leave(client)
        _check_kind(client)
        if client.is_consumer:
            self._core.group(request.group)
        return s.NotifyClientTerminationResponse(status=OK).SerializeToString()

    def sync_lite(self, call: Call, request: s.SyncLiteSubscriptionRequest) -> bytes:
        """Handles the RPC SyncLiteSubscription: changes a client's subscriptions to lite topics."""
        topic, group = self._core.topic(request.topic), self._core.group(request.group)
        bound = bind_topic(self._core.group_config(group))
        if bound != topic:
            message = f"lite group {group} is expected to bind topic {bound or 'null'}, but actual is {topic}"
            raise StatusError(d.ILLEGAL_TOPIC, message)
        if request.action == d.PARTIAL_ADD:
            for name in request.lite_topic_set:
                check_lite_topic(name)
        client_id = call.header("x-mq-client-id")
        client = self.of(call) or Client(client_id, self._deliver)
        change: dict[str, object] = {
            "action": d.LiteSubscriptionAction.Name(request.action),
            "liteTopicSet": list(request.lite_topic_set),
            "version": request.version,
        }
        if request.action == d.PARTIAL_ADD and request.HasField("offset_option"):
            change["offsetOption"] = _offset_option(request.offset_option)
        self._subscribe_lite(client, group, topic, change)
        return s.SyncLiteSubscriptionResponse(status=OK).SerializeToString()

    def _subscribe_lite(self, client: Client, group: str, topic: str, change: dict[str, object]) -> None:
        subscription = {"clientId": client.client_id, "group": group, "topic": topic, **change}
        body = json.dumps({"subscriptionSet": [subscription]}).encode()
        answer = self._core.start(RequestCode.LITE_SUBSCRIPTION_CTL, {}, client.peer, body)
        assert isinstance(answer, Command)
        if answer.code != ResponseCode.SUCCESS:
            raise refused(answer)

    def leave(self, client: Client) -> None:
        """Removes a client."""
        topic = bind_topic(self._core.group_config(client.group)) if client.is_lite else ""
        if topic:
            self._subscribe_lite(client, client.group, topic, {"action": "COMPLETE_REMOVE"})
        del self.table[client.client_id]
        self._bytes -= client.size
        self._left(client)

    def lost(self, stream: "Telemetry") -> None:
        """Handles the end of a telemetry stream: its client can get no more commands.

        The client leaves with its connection. Until then it may work on messages, and send calls and heartbeats
        (ClientActivity). Its settings are kept for a while.
        """
        client, peer = self.table.get(stream.client_id), stream.call.peer
        if client is None or client.stream is not stream:
            return
        client.stream = None
        if peer.closed:
            self._left(client)
            return
        client.connection = peer
        if _WATCHED not in peer.attributes:
            peer.attributes[_WATCHED] = True
            peer.on_close(self._disconnected)

    def _disconnected(self, peer: Peer) -> None:
        """Handles the end of a connection: clients leave whose stream on it ended, and that have no other one."""
        for client in [client_entry for client_entry in self.table.values() if client_entry.connection is peer]:
            client.connection = None
            if client.stream is None:
                self._left(client)

    def is_present(self, client_id: str) -> bool:
        """Whether a client is in its consumer group: not if it left, or sent no heartbeat for two minutes."""
        client = self.table.get(client_id)
        group = None if client is None else self._core.broker.clients.consumers.get(client.group)
        return client is not None and group is not None and client.peer in group.members

    def _left(self, client: Client) -> None:
        self._core.broker.clients.forget(client.peer)
        for listener in self.on_leave:
            listener(client)


class Telemetry:
    """The telemetry stream of one client: receives settings and answers, sends settings and commands."""

    def __init__(self, clients: Clients, call: Call, client_id: str) -> None:
        self.call, self.client_id = call, client_id
        self._clients = clients

    def received(self, message: bytes) -> None:
        """Answers settings; results of commands are not answered."""
        try:
            command = s.TelemetryCommand.FromString(message)
        except DecodeError as error:
            raise GrpcError(GrpcStatus.INTERNAL, "Invalid protobuf byte sequence") from error
        if self._clients.check is not None:
            try:
                self._clients.check(self.call, command)
            except StatusError as error:
                self.send(s.TelemetryCommand(status=error.status))
                self.call.finish()
                return
        if command.WhichOneof("command") == "settings":
            merged = self._clients.apply_settings(self, command.settings)
            self.send(s.TelemetryCommand(status=OK, settings=merged))

    def send(self, command: s.TelemetryCommand) -> None:
        """Sends a command to the client."""
        self.call.send(command.SerializeToString())

    def half_closed(self) -> None:
        """Ends the stream, because the client has closed its side."""
        self.call.finish()

    def closed(self) -> None:
        """Called at the end of the call."""
        self._clients.lost(self)


def retry_policy(config: GroupConfig) -> d.RetryPolicy:
    """Returns the retry policy of a consumer group: the delays before redeliveries."""
    policy = d.RetryPolicy(max_attempts=config.retry_max_times + 1)
    given = config.extra.get("groupRetryPolicy")
    given = given if isinstance(given, dict) else {}
    if given.get("type") == "EXPONENTIAL":
        own = given.get("exponentialRetryPolicy")
        own = own if isinstance(own, dict) else {}
        _set_ms(policy.exponential_backoff.initial, int(own.get("initial", 5000)))
        _set_ms(policy.exponential_backoff.max, int(own.get("max", 7_200_000)))
        policy.exponential_backoff.multiplier = float(own.get("multiplier", 2))
        return policy
    custom = given.get("customizedRetryPolicy")
    steps = custom.get("next") if isinstance(custom, dict) else None
    for step in steps or [seconds * 1000 for seconds in RETRY_STEPS_S]:
        _set_ms(policy.customized_backoff.next.add(), int(step))
    return policy


def _set_ms(duration: Duration, value: int) -> None:
    duration.seconds, rest = divmod(value, 1000)
    duration.nanos = rest * 1_000_000


def _check_kind(client: Client) -> None:
    """Raises StatusError if a client is neither a producer nor a consumer."""
    kind = client.settings.client_type
    if kind not in _CONSUMERS and kind != d.PRODUCER:
        raise StatusError(d.UNRECOGNIZED_CLIENT_TYPE, _name_in(d.ClientType, kind))


def _name_in(enum: Any, number: int) -> str:
    """Returns the name of a number in an enumeration; another version of the protocol may have further ones."""
    return str(enum.Name(number)) if number in enum.values() else "UNRECOGNIZED"


def _number(value: object, default: int) -> int:
    try:
        return java.parse_int(str(value)) if value is not None else default
    except FormatError:
        return default


def _offset_option(option: d.OffsetOption) -> dict[str, object]:
    """Converts the offset at which a lite subscription begins to the form of the broker's requests (OffsetOption)."""
    kind = option.WhichOneof("offset_type")
    return {"type": (kind or "policy").upper(), "value": int(getattr(option, kind)) if kind else 0}
