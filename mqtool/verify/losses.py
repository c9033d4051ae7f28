"""What is lost: byte ranges, messages by queue, and how many of those each consumer group had consumed.

Three proofs that a message existed: its unit points into the damage (exact); its record exists with a damaged body
(exact); the queue offsets of the records around the damage skip its offset.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from mqtool.formats.topics import TopicQueue
from mqtool.records.number_sets import among
from mqtool.recovery.losses import claims_of_queue, confirmed_places, spread
from mqtool.store import Store
from mqtool.store.known_losses import Interval, KnownLosses, LostOffsets, merged, offsets_by_name, without
from mqtool.store.waiting.held_back import waiting_among
from mqtool.verify.consume_queue import QueueFacts
from mqtool.verify.findings import GroupLoss, Losses, LostRange, QueueLoss
from mqtool.verify.record_rules import Jump
from mqtool.verify.segment import DamagedRange
from mqtool.verify.unit_detail import WrongUnits

CUT_OFF = "cut-off"
"""Kind of a lost range after the end of the log."""


class Confirmed(Struct, frozen=True):
    """A message whose record does not prove itself, but is confirmed by its unit."""

    queue: TopicQueue
    offset: int  # queue offset
    size: int  # of the record, bytes


class LossAccount(Struct):
    """Lost messages by queue, and how many of them are in each damaged range."""

    damages: list[DamagedRange]  # in log order
    # Queue offsets of messages that are not lost: their records are in displaced blocks, or their units confirm them.
    saved: Mapping[TopicQueue, list[Interval]] = field(default_factory=dict)
    confirmed: Mapping[int, Confirmed] = field(default_factory=dict)  # by physical offset
    by_damage: list[dict[TopicQueue, int]] = field(default_factory=list)  # queues and messages, one item per damage
    _units: dict[TopicQueue, list[Interval]] = field(default_factory=dict)
    _offsets: dict[TopicQueue, list[Interval]] = field(default_factory=dict)
    _starts: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.by_damage = [{} for _ in self.damages]
        self._starts = [damage.start for damage in self.damages]

    def by_unit(self, queue: TopicQueue, first: int, last: int, damage: int | None) -> None:
        """Records losses that are proved by units of the queue."""
        for low, high in without(first, last, self.saved.get(queue, [])):
            self._units.setdefault(queue, []).append((low, high))
            if damage is not None:
                taken = self.by_damage[damage]
                taken[queue] = taken.get(queue, 0) + high - low + 1

    def by_jump(self, jump: Jump) -> bool:
        """Records losses that are proved by a jump around damage; returns whether there is damage that explains it."""
        first = bisect_left(self._starts, jump.before)
        if first == len(self.damages) or self.damages[first].end > jump.after or jump.actual <= jump.expected:
            return False
        queue = (jump.topic, jump.queue_id)
        fresh = without(jump.expected, jump.actual - 1, [*self._units.get(queue, []), *self.saved.get(queue, [])])
        taken = self.by_damage[first]
        for low, high in fresh:
            self._offsets.setdefault(queue, []).append((low, high))
            taken[queue] = taken.get(queue, 0) + high - low + 1
        return True

    def damage_at(self, physical: int) -> int | None:
        """Returns the number of the damage that covers a physical offset."""
        at = bisect_right(self._starts, physical) - 1
        return at if at >= 0 and physical < self.damages[at].end else None

    def queues(self) -> tuple[QueueLoss, ...]:
        """Returns the losses by topic, queue and proof."""
        losses = [
            QueueLoss(*queue, merged(parts), proof)
            for proof, queues in (("units", self._units), ("offsets", self._offsets))
            for queue, parts in queues.items()
        ]
        return tuple(sorted(losses, key=lambda loss: (loss.topic, loss.queue_id, loss.proof)))


def add_proved_losses(
    account: LossAccount,
    wrong_units: Iterable[WrongUnits],
    queues: Iterable[QueueFacts],
    bodies: Iterable[tuple[str, int, int, int, int]],
) -> None:
    """Adds the losses that units and records prove; jumps are added later."""
    for units in wrong_units:
        if not units.code:
            account.by_unit(units.queue, units.first_offset, units.last_offset, units.damage)
    for facts in queues:
        for run in (*facts.lost, *facts.ahead):
            damage = account.damage_at(run.start)
            account.by_unit((facts.topic, facts.queue_id), run.first_offset, run.last_offset, damage)
    for topic, queue_id, offset, _, _ in bodies:
        account.by_unit((topic, queue_id), offset, offset, None)


def confirmed_messages(
    store: Store, wrong_units: Iterable[WrongUnits], queues: Iterable[QueueFacts]
) -> dict[int, Confirmed]:
    """Returns messages, by physical offset, whose units lead to no record, and confirm one all the same."""
    runs: dict[TopicQueue, list[Interval]] = {}
    for units in wrong_units:
        if not units.code:
            runs.setdefault(units.queue, []).append((units.first_offset, units.last_offset))
    for facts in queues:
        parts = [(run.first_offset, run.last_offset) for run in (*facts.lost, *facts.ahead)]
        runs.setdefault((facts.topic, facts.queue_id), []).extend(parts)
    claims = {}
    for queue in store.disk_queues():
        first, last = np.array(runs.get((queue.topic, queue.queue_id), []), np.int64).reshape(-1, 2).T
        if len(first):
            claim = claims_of_queue(queue, store.commit_log.min_offset)
            claims[queue.topic, queue.queue_id] = claim.select(among(claim.offsets, spread(first, last - first + 1)))
    places = confirmed_places(store.commit_log.read, claims)
    return {
        physical: Confirmed(key, offset, size)
        for key, claim in claims.items()
        for offset, physical, size in zip(
            *(column.tolist() for column in claim.select(among(claim.physical, places)).columns), strict=True
        )
    }


def cut_off(queues: Iterable[QueueFacts], account: LossAccount) -> list[LostRange]:
    """Returns the ranges after the end of the log that units refer to and no missing segment explains."""
    runs = sorted(
        (run.start, run.end, run.messages)
        for facts in queues
        for run in facts.ahead
        if account.damage_at(run.start) is None
    )
    ranges: list[LostRange] = []
    for start, end, messages in runs:
        last = ranges[-1] if ranges else None
        if last is not None and start <= last.end:
            ranges[-1] = LostRange(last.start, max(last.end, end), CUT_OFF, "", 0, last.messages + messages)
        else:
            ranges.append(LostRange(start, end, CUT_OFF, "", 0, messages))
    return ranges


def group_losses(
    losses: Iterable[QueueLoss], offsets: Mapping[str, Mapping[str, Mapping[int, int]]]
) -> tuple[GroupLoss, ...]:
    """Returns, for each group that consumes a queue with losses, how many of the lost messages it had consumed."""
    by_queue: dict[TopicQueue, list[Interval]] = {}
    for loss in losses:
        by_queue.setdefault((loss.topic, loss.queue_id), []).extend(loss.offsets)
    entries = []
    for group, topics in sorted(offsets.items()):
        for (topic, queue_id), parts in sorted(by_queue.items()):
            offset = topics.get(topic, {}).get(queue_id)
            if offset is None:
                continue
            total = sum(last - first + 1 for first, last in merged(parts))
            unread = sum(max(0, last - max(first, offset) + 1) for first, last in merged(parts))
            entries.append(GroupLoss(group, topic, queue_id, offset, total - unread, unread))
    return tuple(entries)


def losses_of(account: LossAccount, ranges: list[LostRange], store: Store, includes: Callable[[str], bool]) -> Losses:
    """Returns the losses: all ranges of the log, and the messages of the topics that `includes` accepts."""
    queues = tuple(loss for loss in account.queues() if includes(loss.topic))
    losses = Losses(tuple(ranges), queues, group_losses(queues, store.metadata.consumer_offsets))
    lost = offsets_by_name(losses.offsets)
    return replace(losses, waiting=sum(waiting_among(store, lost).values())) if lost else losses


def known_queues(
    known: KnownLosses, reported: Iterable[LostOffsets], includes: Callable[[str], bool]
) -> tuple[QueueLoss, ...]:
    """Returns the messages of included topics that are lost according to a record and not reported otherwise."""
    return tuple(
        QueueLoss(lost.topic, lost.queue_id, lost.offsets, "known")
        for lost in known.besides(reported)
        if includes(lost.topic)
    )
