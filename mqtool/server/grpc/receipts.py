"""Receipt handles, which identify received messages, and their renewal while a push consumer processes a message.

A handle is the POP_CK of the message followed by its physical offset. The server keeps no state for it, so it remains
valid after a restart. Source: ReceiptHandle, DefaultReceiptHandleManager (rocketmq-proxy 5.5.0).
"""

import logging
import re
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from msgspec import Struct

from mqtool.errors import FormatError
from mqtool.formats import java
from mqtool.formats.topics import pop_retry_topic
from mqtool.protocol.command import RequestCode, ResponseCode
from mqtool.protocol.rocketmq_v2 import definition as d
from mqtool.server.broker.pop.check_points import ORDER_REVIVE_QUEUE
from mqtool.server.grpc.core import Core, StatusError, thrown
from mqtool.server.net.peer import Peer

_LOG = logging.getLogger(__name__)

_PLAIN = re.compile(r"(?:[0-9]{1,18} ){3}[0-9]{1,9} [012] [^ ]+ [0-9]{1,9} [0-9]{1,18} [0-9]{1,18}")
"""Matches handles as the broker creates them: numbers without signs, small enough for their types."""

_WORDS = 8
"""Minimum number of words of a handle."""

RENEWAL_MS = 60_000
"""Invisible duration, in ms, that a message gets at each renewal."""
AHEAD_MS = 10_000
"""How long before its end an invisible duration is renewed, in ms."""
RENEW_MAX_MS = 10_800_000
PERIOD_S = 1.0
MAX_RENEWED = 200_000
"""Maximum number of messages that are renewed; a new one replaces the oldest, which is then no longer renewed."""
_FREED_MS = 1000


class Receipt(NamedTuple):
    """A parsed receipt handle; its physical offset is -1 if the handle has none.

    `retry` is POP's mark for the topic: 0 for the topic itself, 1 and 2 for the two forms of the retry topic's name.
    """

    start: int
    pop_time: int
    invisible_ms: int
    revive_queue: int
    retry: int
    broker_name: str
    queue_id: int
    offset: int
    physical_offset: int

    @property
    def text(self) -> str:
        """The handle in the form that clients receive."""
        return " ".join(map(str, self))

    @property
    def extra_info(self) -> str:
        """The handle in the form of the field extraInfo in the broker's requests."""
        return " ".join(map(str, self[:-1]))

    @property
    def end(self) -> int:
        """When the invisible duration ends, in ms since epoch."""
        return self.pop_time + self.invisible_ms

    @property
    def in_order(self) -> bool:
        """Whether the message was popped in order."""
        return self.revive_queue == ORDER_REVIVE_QUEUE

    def topic(self, group: str, topic: str) -> str:
        """Returns the topic from which the message was popped."""
        return pop_retry_topic(group, topic, second_form=self.retry != 1) if self.retry else topic


def parse_receipt(handle: str) -> Receipt:
    """Parses a receipt handle; raises StatusError if it is invalid.

    The physical offset may be missing and is -1 then; more words are ignored (ReceiptHandle.decode). Any retry mark
    other than 1 and 2, number or not, stands for the topic itself (ReceiptHandle.getRealTopic).
    """
    words = java.split_drop_trailing(handle, " ")
    if len(words) < _WORDS:
        raise StatusError(d.INTERNAL_SERVER_ERROR, f"Parse failed, dataList size {len(words)}")
    try:
        start, pop_time, invisible_ms, revive_queue, retry, name, queue_id, offset, *rest = words
        if _PLAIN.fullmatch(handle):
            numbers = int(start), int(pop_time), int(invisible_ms), int(revive_queue), int(retry)
            return Receipt(*numbers, name, int(queue_id), int(offset), int(rest[0]))
        return Receipt(
            java.parse_long(start),
            java.parse_long(pop_time),
            java.parse_long(invisible_ms),
            java.parse_int(revive_queue),
            int(retry) if retry in ("1", "2") else 0,
            name,
            java.parse_int(queue_id),
            java.parse_long(offset),
            java.parse_long(rest[0]) if rest else -1,
        )
    except (ValueError, FormatError) as error:
        raise StatusError(d.INTERNAL_SERVER_ERROR, f"receipt handle {handle[:200]!r} is invalid: {error}") from error


def check_fresh(receipt: Receipt, now: int) -> None:
    """Raises StatusError if the invisible duration of a message has ended at `now`, in ms since epoch."""
    if receipt.end <= now:
        raise thrown(d.INVALID_RECEIPT_HANDLE, "receipt handle is expired")


async def change(
    core: Core, peer: Peer, group: str, topic: str, receipt: Receipt, ms: int, *, lite: str = "", suspend: bool = False
) -> Receipt:
    """Changes a message's invisible duration to `ms`; returns its new receipt handle."""
    fields = _fields(group, topic, lite, receipt) | {"invisibleTime": str(ms), "suspend": str(suspend).lower()}
    answer = await core.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, fields, peer)
    header = answer.fields
    if answer.code != ResponseCode.SUCCESS:
        raise StatusError(d.INTERNAL_SERVER_ERROR, "changeInvisibleDuration failed: status is abnormal")
    if "popTime" not in header:
        return receipt
    start = receipt.start if receipt.in_order else receipt.offset
    return receipt._replace(
        start=start,
        pop_time=int(header["popTime"]),
        invisible_ms=int(header["invisibleTime"]),
        revive_queue=int(header["reviveQid"]),
    )


def _fields(group: str, topic: str, lite: str, receipt: Receipt) -> dict[str, str]:
    """Returns the fields by which a request names a message that was popped."""
    return {
        "consumerGroup": group,
        "topic": receipt.topic(group, topic),
        "queueId": str(receipt.queue_id),
        "extraInfo": receipt.extra_info,
        "offset": str(receipt.offset),
        "liteTopic": lite,
    }


class _Renewed(Struct):
    """A message that a client is processing."""

    key: tuple[str, str, str]  # client id, consumer group, and the receipt handle that the client has
    peer: Peer  # connection of the client
    # topic, lite: topic and lite topic from which the message was received
    topic: str
    lite: str
    receipt: Receipt  # its current receipt handle
    until: int  # when its renewal ends, ms since epoch
    acknowledged: bool = False  # whether its client is done with it


class Renewals:
    """The messages renewed, by client, group and handle. Must be used in the event loop's thread."""

    def __init__(self, core: Core, is_present: Callable[[str], bool]) -> None:
        """Creates an empty table; `is_present` tells whether the client of a client id is there."""
        self._core, self._is_present = core, is_present
        self._table: OrderedDict[tuple[str, str, str], _Renewed] = OrderedDict()
        self._by_client: dict[str, set[tuple[str, str, str]]] = {}

    def add(self, client_id: str, group: str, topic: str, lite: str, handle: str, receipt: Receipt, peer: Peer) -> None:
        """Starts to renew a message."""
        key = (client_id, group, handle)
        self._table[key] = _Renewed(key, peer, topic, lite, receipt, receipt.pop_time + RENEW_MAX_MS)
        self._by_client.setdefault(client_id, set()).add(key)
        while len(self._table) > MAX_RENEWED:
            self._remove(next(iter(self._table)))

    def take(self, client_id: str, group: str, handle: str, *, acknowledged: bool = False) -> Receipt:
        """Stops the renewal of a message; returns its current receipt, or that of the handle if it is not renewed.

        `acknowledged` states whether the client acknowledges it. Raises StatusError if the handle is invalid, or of
        another broker.
        """
        entry = self._remove((client_id, group, handle))
        if entry is not None:
            entry.acknowledged = acknowledged
            return entry.receipt
        receipt = parse_receipt(handle)
        if receipt.broker_name != self._core.broker_name:
            raise thrown(d.INVALID_RECEIPT_HANDLE, f"cannot find broker {receipt.broker_name}")
        return receipt

    def _remove(self, key: tuple[str, str, str]) -> _Renewed | None:
        entry = self._table.pop(key, None)
        if entry is not None:
            keys = self._by_client[key[0]]
            keys.discard(key)
            if not keys:
                del self._by_client[key[0]]
        return entry

    async def turn(self) -> float:
        """Renews messages whose invisible duration ends soon; returns the seconds until the next run.

        Those of clients that are gone become visible (DefaultReceiptHandleManager.scheduleRenewTask).
        """
        for client_id in [name for name in self._by_client if not self._is_present(name)]:
            await self.free(client_id)
        now = self._core.broker.clock.now()
        due = [entry for entry in self._table.values() if entry.receipt.end - AHEAD_MS <= now]
        for entry in due:
            if self._table.get(entry.key) is not entry:  # its client took it while another one was being renewed
                continue
            if min(entry.until, entry.receipt.end) <= self._core.broker.clock.now():
                self._remove(entry.key)
                continue
            before = entry.receipt
            await self._change(entry, RENEWAL_MS)
            if entry.receipt is not before and entry.acknowledged:
                await self._give_up(entry)
        return PERIOD_S

    async def _give_up(self, entry: _Renewed) -> None:
        """Acknowledges the receipt of a renewal during which the client acknowledged the one before.

        Otherwise the message would be delivered again. A message popped in order has no check point of its own. A
        client that did not acknowledge may need that other delivery: its own request may fail.
        """
        if not entry.receipt.in_order:
            fields = _fields(entry.key[1], entry.topic, entry.lite, entry.receipt)
            await self._core.ask(RequestCode.ACK_MESSAGE, fields, entry.peer)

    async def _change(self, entry: _Renewed, ms: int) -> None:
        group = entry.key[1]
        try:
            receipt = await change(self._core, entry.peer, group, entry.topic, entry.receipt, ms, lite=entry.lite)
        except StatusError as error:
            _LOG.info("an invisible time was not renewed group=%s topic=%s error=%s", group, entry.topic, error)
            self._remove(entry.key)
            return
        entry.receipt = receipt

    async def give_back(
        self, client_id: str, group: str, topic: str, lite: str, handle: str, receipt: Receipt, peer: Peer
    ) -> None:
        """Makes a message that did not reach its client visible again; this does not count as a delivery."""
        entry = self._remove((client_id, group, handle))
        receipt = receipt if entry is None else entry.receipt
        if receipt.end <= self._core.broker.clock.now():
            return
        try:
            await change(self._core, peer, group, topic, receipt, _FREED_MS, lite=lite, suspend=True)
        except StatusError as error:
            _LOG.info("an undelivered message stays invisible group=%s topic=%s error=%s", group, topic, error)

    async def free(self, client_id: str) -> None:
        """Makes unacknowledged messages of a client that has left visible to other consumers."""
        for key in list(self._by_client.get(client_id, ())):
            entry = self._remove(key)
            if entry is not None and entry.receipt.end > self._core.broker.clock.now():
                await self._change(entry, _FREED_MS)
