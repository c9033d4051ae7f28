"""Handles requests about the broker itself: configuration, runtime information, statistics, queues, files.

Source: AdminBrokerProcessor (5.5.0).
"""

import shutil
from typing import Any

from mqtool import words
from mqtool.engine.disk.files import Files
from mqtool.errors import FormatError, UsageError
from mqtool.formats import file_names, java
from mqtool.formats.release import MEASURED
from mqtool.protocol.command import Command, RequestCode, ResponseCode
from mqtool.server.broker.answers import QueueName, RefusalError, body, number, ok, text
from mqtool.server.broker.broker import Broker, RequestProcessor, handles
from mqtool.server.broker.clients import is_tag
from mqtool.server.broker.delay import Schedule, Timer
from mqtool.server.broker.stats import TOPIC_PUT_NUMS
from mqtool.server.net.peer import Peer

_BLACKLIST = ("brokerConfigPath", "configBlackList", "rocketmqHome")
"""Keys that UPDATE_BROKER_CONFIG refuses, in addition to those of the key configBlackList."""

_POOLS = {"send": 10_000, "pull": 100_000, "litePull": 100_000, "ack": 100_000, "query": 20_000}
"""Default capacities of the queues before the real broker's thread pools. This broker has none; they count as empty."""

_PUT_TIMES = [
    "<=0ms",
    "0~10ms",
    "10~50ms",
    "50~100ms",
    "100~200ms",
    "200~500ms",
    "500ms~1s",
    "1~2s",
    "2~3s",
    "3~4s",
    "4~5s",
    "5~10s",
    "10s~",
]
_TIMES = {
    "getMessageEntireTimeMax": 0,
    "pageCacheLockTimeMills": 0,
    "putLatency99": "0.00",
    "putLatency999": "0.00",
    "putMessageDistributeTime": " ".join(f"[{span}]:0" for span in _PUT_TIMES),
    "putMessageEntireTimeMax": 0,
    "startAcceptSendRequestTimeStamp": 0,
}
"""Times that this broker does not measure. Exporters of metrics fail where a name is missing."""


class BrokerAdmin(RequestProcessor):
    """Handles requests about the broker."""

    def __init__(self, broker: Broker, timer: Timer, schedule: Schedule) -> None:
        super().__init__(broker)
        self._timer, self._schedule = timer, schedule

    @handles(RequestCode.GET_BROKER_CONFIG)
    def config(self, command: Command, _peer: Peer) -> Command:
        broker, settings = self._broker, self._broker.settings
        version = {"counter": settings.version, "stateVersion": 0, "timestamp": settings.changed_at}
        text = settings.properties_text(broker.messages.options)
        return ok(command, {"version": body(version).decode()}, text.encode())

    @handles(RequestCode.UPDATE_BROKER_CONFIG)
    def update_config(self, command: Command, _peer: Peer) -> Command:
        """UPDATE_BROKER_CONFIG: changes settings until the broker stops; the configuration file is not changed."""
        try:
            changes = java.parse_properties(bytes(command.body))
        except FormatError as error:
            raise RefusalError(ResponseCode.SYSTEM_ERROR, "string2Properties error") from error
        blacklist = {*_BLACKLIST, *filter(None, self._broker.settings.text("configBlackList").split(";"))}
        if not blacklist.isdisjoint(changes):
            raise RefusalError(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        try:
            self._broker.change_settings(changes)
        except UsageError as error:
            raise RefusalError(ResponseCode.INVALID_PARAMETER, str(error)) from error
        return ok(command)

    @handles(RequestCode.GET_BROKER_RUNTIME_INFO)
    def runtime_info(self, command: Command, _peer: Peer) -> Command:
        table = {
            key: str(value).lower() if isinstance(value, bool) else str(value)
            for key, value in sorted(self.runtime().items())
        }
        return ok(command, data=body({"table": table}))

    def runtime(self) -> dict[str, Any]:
        """Returns the broker's statistics under the names that tools use."""
        broker, stats = self._broker, self._broker.stats
        yesterday, today = stats.mornings()
        waits = {f"{pool}ThreadPoolQueue{what}": 0 for pool in _POOLS for what in ("Size", "HeadWaitTimeMills")}
        return (
            waits
            | {f"{pool}ThreadPoolQueueCapacity": capacity for pool, capacity in _POOLS.items()}
            | {"EndTransactionQueueSize": 0, "EndTransactionThreadPoolQueueCapacity": 100_000}
            | _TIMES
            | self._timer.runtime()
            | self._schedule.runtime()
            | self._storage()
            | {
                "bootTimestamp": broker.began_ms,
                "brokerActive": not broker.is_stopping,
                "brokerVersion": broker.version,
                "brokerVersionDesc": f"V{MEASURED[broker.release].replace('.', '_')}",
                "getFoundTps": stats.rates(3),
                "getMissTps": stats.rates(4),
                "getTotalTps": stats.rates(2),
                "getTransferedTps": stats.rates(2),
                "getTransferredTps": stats.rates(2),
                "msgGetTotalTodayMorning": today[1],
                "msgGetTotalTodayNow": stats.gets,
                "msgGetTotalYesterdayMorning": yesterday[1],
                "msgPutTotalTodayMorning": today[0],
                "msgPutTotalTodayNow": stats.puts,
                "msgPutTotalYesterdayMorning": yesterday[0],
                "putMessageAverageSize": stats.put_bytes / max(1, stats.puts),
                "putMessageFailedTimes": stats.put_failures,
                "putMessageSizeTotal": stats.put_bytes,
                "putMessageTimesTotal": stats.puts,
                "putTps": stats.rates(1),
                "runtime": _duration(int(broker.clock.monotonic() - broker.began)),
            }
        )

    def _storage(self) -> dict[str, Any]:
        messages, files = self._broker.messages, Files()
        disk = shutil.disk_usage(self._broker.root)
        ratios = {
            path: files.used_ratio(path)
            for path in messages.options.commit_log_dirs or (messages.path / file_names.COMMIT_LOG,)
        }
        pool = messages.options.pool_buffers
        return {f"commitLogDiskRatio_{path}": ratio for path, ratio in ratios.items()} | {
            "commitLogDirCapacity": f"Total : {_bytes(disk.total)}, Free : {_bytes(disk.free)}.",
            "commitLogDiskRatio": min(ratios.values()),
            "commitLogMaxOffset": max(0, messages.max_physical_offset),
            "commitLogMinOffset": max(0, messages.min_physical_offset),
            "consumeQueueDiskRatio": files.used_ratio(messages.path),
            "dispatchBehindBytes": messages.dispatch_behind,
            "dispatchMaxBuffer": 0,
            "earliestMessageTimeStamp": messages.earliest_store_time(),
            "remainHowManyDataToCommit": _bytes(0),
            "remainHowManyDataToFlush": _bytes(max(0, messages.max_physical_offset - messages.flushed_offset)),
            "remainTransientStoreBufferNumbs": pool or java.INT_MAX,
        }

    @handles(RequestCode.GET_TOPIC_STATS_INFO)
    def topic_stats(self, command: Command, _peer: Peer) -> Command:
        broker, topic = self._broker, text(command, "topic")
        config = broker.existing_topic(topic, f"topic[{topic}] not exist")
        name, table = broker.settings.text("brokerName"), {}
        for queue_id in range(max(config.write_queue_nums, config.read_queue_nums)):
            lowest, highest = broker.messages.queue_bounds(topic, queue_id)
            last = broker.messages.store_time(topic, queue_id, highest - 1) if highest > 0 else 0
            table[QueueName(name, queue_id, topic)] = {
                "lastUpdateTimestamp": max(0, last),
                "maxOffset": highest,
                "minOffset": max(0, lowest),
            }
        rate = broker.stats.per_second(TOPIC_PUT_NUMS, topic)
        return ok(command, data=body({"offsetTable": table, "topicPutTps": rate}))

    @handles(RequestCode.VIEW_BROKER_STATS_DATA)
    def stats_data(self, command: Command, _peer: Peer) -> Command:
        name, key = text(command, "statsName"), text(command, "statsKey")
        item = self._broker.stats.item(name, key)
        if item is None:
            raise RefusalError(ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist")
        return ok(command, data=body(item))

    @handles(RequestCode.QUERY_CONSUME_QUEUE)
    def consume_queue(self, command: Command, _peer: Peer) -> Command:
        broker, topic, queue_id = self._broker, text(command, "topic"), number(command, "queueId")
        if broker.topics.get(topic) is None:
            raise RefusalError(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
        lowest, highest = broker.messages.queue_bounds(topic, queue_id)
        first, count = number(command, "index"), min(number(command, "count"), 1024)
        units = broker.messages.units(topic, queue_id, first, count)
        shown: dict[str, Any] = {
            "maxQueueIndex": highest,
            "minQueueIndex": lowest,
            "queueData": [
                {"eval": False, "physicOffset": offset, "physicSize": size, "tagsCode": code}
                for offset, size, code in units
            ],
        }
        group = command.fields.get("consumerGroup")
        consumers = broker.clients.consumers.get(group) if group else None
        if consumers is not None and topic in consumers.subscriptions:
            subscription = consumers.subscriptions[topic]
            shown["subscriptionData"] = subscription.body()
            shown["filterData"] = "null" if is_tag(subscription.kind) else body(subscription.body()).decode()
        elif group:
            shown["filterData"] = f"{group}@{topic} is not online!"
        return ok(command, data=body(shown))

    @handles(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
    def clean_queues(self, command: Command, _peer: Peer) -> Command:
        """CLEAN_EXPIRED_CONSUMEQUEUE: deletes queues whose last record was deleted."""
        self._broker.engine.delete_expired_queues()
        return ok(command)

    @handles(RequestCode.DELETE_EXPIRED_COMMITLOG)
    def clean_log(self, command: Command, _peer: Peer) -> Command:
        """DELETE_EXPIRED_COMMITLOG: takes effect at the next run of retention."""
        self._broker.engine.clean_soon()
        return ok(command)

    @handles(RequestCode.GET_ALL_CONSUMER_OFFSET)
    def consumer_offsets(self, command: Command, _peer: Peer) -> Command:
        """GET_ALL_CONSUMER_OFFSET: returns the content of the file, for slaves."""
        return ok(command, data=self._broker.offsets.encoded())

    @handles(RequestCode.GET_ALL_DELAY_OFFSET)
    def delay_offsets(self, command: Command, _peer: Peer) -> Command:
        """GET_ALL_DELAY_OFFSET: returns the content of the file, for slaves."""
        return ok(command, data=self._schedule.encoded())

    @handles(RequestCode.GET_BROKER_HA_STATUS)
    def ha_status(self, command: Command, _peer: Peer) -> Command:
        """GET_BROKER_HA_STATUS: the list of slaves is always empty."""
        shown = {
            "haClientRuntimeInfo": {},
            "haConnectionInfo": [],
            "inSyncSlaveNums": 0,
            "master": True,
            "masterCommitLogMaxOffset": max(0, self._broker.messages.max_physical_offset),
        }
        return ok(command, data=body(shown))


def _bytes(count: int) -> str:
    """Returns a number of bytes in the format of runtime information (MixAll.humanReadableByteCount)."""
    return f"{count} B" if count < 1024 else words.size(count)


def _duration(seconds: int) -> str:
    days, hours, minutes = seconds // 86_400, seconds // 3600 % 24, seconds // 60 % 60
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds % 60} seconds ]"
