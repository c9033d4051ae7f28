"""The admin port: serves /metrics, /healthz, /readyz and the admin pages over HTTP, read-only; and test endpoints.

`/healthz` reports that the process works, `/readyz` whether it accepts and delivers messages, `/metrics` the metrics of
the broker in Prometheus's text format, under RocketMQ's own names. Source: BrokerMetricsConstant,
DefaultStoreMetricsConstant (5.5.0), as the broker's Prometheus exporter prints them.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator

from mqtool.formats.config_files import split_topic_group
from mqtool.formats.topics import RETRY_PREFIX, is_system_topic
from mqtool.server.admin.endpoints import Endpoints, encoded
from mqtool.server.admin.site import Site
from mqtool.server.broker.broker import Broker
from mqtool.server.broker.stats import GROUP_GET_NUMS, GROUP_GET_SIZE, SEND_BACK_NUMS, TOPIC_PUT_NUMS, TOPIC_PUT_SIZE
from mqtool.server.net.connections import listening_on

_LOG = logging.getLogger(__name__)

_COUNTERS = {
    TOPIC_PUT_NUMS: ("rocketmq_messages_in_total", "Messages stored"),
    TOPIC_PUT_SIZE: ("rocketmq_throughput_in_total", "Bytes stored"),
    GROUP_GET_NUMS: ("rocketmq_messages_out_total", "Messages delivered"),
    GROUP_GET_SIZE: ("rocketmq_throughput_out_total", "Bytes delivered"),
    SEND_BACK_NUMS: ("rocketmq_send_back_messages_total", "Messages that consumers sent back"),
}

_Labels = dict[str, str]
_REQUEST_S = 10.0
_LAST_ANSWERS_S = 0.2
"""Maximum time in seconds for sending the last answers when the port closes."""
_MAX_HEAD = 16 << 10
_TEXT = "text/plain; charset=utf-8"
_METRICS = "text/plain; version=0.0.4; charset=utf-8"

_Page = tuple[int, str, str]
"""(status, content type, text)."""


def metrics_of(broker: Broker) -> str:
    """Returns all metrics of a broker."""
    common = {
        "cluster": broker.settings.text("brokerClusterName"),
        "node_type": "broker",
        "node_id": broker.settings.text("brokerName"),
    }
    lines: list[str] = []
    for name, kind, doc, samples in _families(broker):
        lines += [f"# HELP {name} {doc}", f"# TYPE {name} {kind}"]
        lines += [f"{name}{_shown({**common, **labels})} {value}" for labels, value in samples]
    return "\n".join(lines) + "\n"


def _families(broker: Broker) -> Iterator[tuple[str, str, str, list[tuple[_Labels, float]]]]:
    messages, clients = broker.messages, broker.clients
    unflushed = max(0, messages.max_physical_offset - messages.flushed_offset)
    log_bytes = max(0, messages.max_physical_offset) - max(0, messages.min_physical_offset)
    oldest = messages.earliest_store_time()
    reserve = max(0, broker.clock.now() - oldest) if oldest >= 0 else 0
    allowed = broker.settings.number("brokerPermission")
    gauges: list[tuple[str, str, float]] = [
        ("rocketmq_broker_permission", "Permissions: 4 read, 2 write", allowed),
        ("rocketmq_topic_number", "Topics", len(broker.topics.table)),
        ("rocketmq_consumer_group_number", "Groups", len(broker.groups.table)),
        ("rocketmq_producer_connections", "Producers", sum(map(len, clients.producers.values()))),
        ("rocketmq_storage_size", "Bytes of the log", log_bytes),
        ("rocketmq_storage_flush_behind_bytes", "Bytes of the log not yet flushed to disk", unflushed),
        (
            "rocketmq_storage_dispatch_behind_bytes",
            "Bytes of the log not yet dispatched to queues",
            messages.dispatch_behind,
        ),
        ("rocketmq_storage_message_reserve_time", "Age of the oldest message, ms", reserve),
        ("rocketmq_held_requests", "Pull requests waiting for messages", broker.long_polling.count),
    ]
    for name, doc, value in gauges:
        yield name, "gauge", doc, [({}, value)]
    online: list[tuple[_Labels, float]] = [
        ({"consumer_group": group.name, "consume_mode": group.consume_type}, len(group.members))
        for group in clients.consumers.values()
    ]
    yield "rocketmq_consumer_connections", "gauge", "Consumers", online
    yield "rocketmq_consumer_lag_messages", "gauge", "Messages that a group has not consumed", list(_lags(broker))
    early = broker.early_deletions
    yield (
        "mqtool_unexpired_messages_deleted_total",
        "counter",
        "Messages deleted before they expired, on a full disk",
        [({}, early.messages)],
    )
    unread: list[tuple[_Labels, float]] = [
        ({"topic": topic, "consumer_group": group}, count) for (topic, group), count in sorted(early.unread.items())
    ]
    yield (
        "mqtool_unread_messages_deleted_total",
        "counter",
        "Messages deleted before they expired that a group had not read",
        unread,
    )
    skipped: list[tuple[_Labels, float]] = [
        ({"service": service}, count) for service, count in sorted(broker.skipped.counts.items())
    ]
    yield (
        "mqtool_skipped_messages_total",
        "counter",
        "Messages of system topics that a broker service could not process",
        skipped,
    )
    totals = broker.stats.items()
    for item, (name, doc) in _COUNTERS.items():
        yield (
            name,
            "counter",
            doc,
            [(_labels(item, key), total) for (counter, key), total in totals.items() if counter == item],
        )


def _lags(broker: Broker) -> Iterator[tuple[_Labels, float]]:
    for topic, group in broker.offsets.pairs():
        if broker.topics.get(topic) is not None:
            committed = broker.offsets.of(group, topic)
            lags = (broker.messages.queue_bounds(topic, queue_id)[1] - at for queue_id, at in committed.items())
            labels = {"topic": topic, "consumer_group": group, "is_retry": _truth(topic.startswith(RETRY_PREFIX))}
            yield labels, sum(max(0, lag) for lag in lags)


def _labels(item: str, key: str) -> _Labels:
    topic, group = split_topic_group(key)
    labels = {"topic": topic, "is_system": _truth(is_system_topic(topic))}
    if item in (GROUP_GET_NUMS, GROUP_GET_SIZE, SEND_BACK_NUMS):
        labels |= {"consumer_group": group, "is_retry": _truth(topic.startswith(RETRY_PREFIX))}
    return labels


def _truth(value: bool) -> str:
    return str(value).lower()


def _shown(labels: _Labels) -> str:
    escaped = (
        (name, value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")) for name, value in labels.items()
    )
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped) + "}"


class AdminHttp:
    """The HTTP listener of a broker's admin port; `port` is valid once it is started."""

    def __init__(
        self, broker: Broker, host: str, port: int, site: Site | None = None, endpoints: Endpoints | None = None
    ) -> None:
        """Creates a listener; port 0 selects a free port."""
        self.port = port
        self._broker = broker
        self._site = site
        self._endpoints = endpoints
        self._host = host
        self._server: asyncio.Server | None = None
        self._asked: set[asyncio.Task[None]] = set()
        self._pages: dict[str, Callable[[], _Page]] = {
            "/metrics": lambda: (200, _METRICS, metrics_of(self._broker)),
            "/healthz": lambda: (200, _TEXT, "ok\n"),
            "/readyz": lambda: _readiness(self._broker),
        }

    def serve(self, broker: Broker) -> None:
        """Reports another broker from now on."""
        self._broker = broker
        if self._site is not None:
            self._site.serve(broker)

    async def start(self) -> None:
        """Starts listening; raises UsageError if the address cannot be bound."""
        with listening_on(self._host, self.port):
            self._server = await asyncio.start_server(self._serve, self._host or None, self.port, limit=_MAX_HEAD)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Closes the port; when it returns, no page reads the store any more."""
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._site is not None:
            await self._site.close()
        if self._asked:  # send answers that are ready; idle browser connections are just closed
            _, silent = await asyncio.wait(self._asked, timeout=_LAST_ANSWERS_S)
            for task in silent:
                task.cancel()
            await asyncio.gather(*silent, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._asked.add(task)
        task.add_done_callback(self._asked.discard)
        try:
            async with asyncio.timeout(_REQUEST_S):
                head = await reader.readuntil(b"\r\n\r\n")
            page = await self._endpoints.answer(head, reader) if self._endpoints is not None else None
            async with asyncio.timeout(_REQUEST_S):
                if page is None and self._site is not None:
                    page = await self._site.answer(head)
                writer.write(self._answer(head) if page is None else page)
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            _LOG.debug("admin request not answered error=%r", error)
        finally:
            writer.close()

    def _answer(self, head: bytes) -> bytes:
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        method, path = (words[0], words[1].partition("?")[0]) if len(words) == 3 else ("", "")
        page = self._pages.get(path)
        if method not in ("GET", "HEAD"):
            status, kind, shown = 405, _TEXT, "only GET\n"
        elif page is None:
            status, kind, shown = 404, _TEXT, "".join(f"{name}\n" for name in self._pages)
        else:
            status, kind, shown = page()
        return encoded(status, shown.encode("utf-8", "replace"), kind, with_body=method != "HEAD")


def _readiness(broker: Broker) -> _Page:
    problem = broker.problem
    return (200, _TEXT, "ready\n") if problem is None else (503, _TEXT, f"{problem}\n")
