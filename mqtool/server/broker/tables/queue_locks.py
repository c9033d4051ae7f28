"""Queue locks of consumers that consume in order: each queue is locked by one client of a group.

Source: RebalanceLockManager (5.5.0).
"""

import time
from collections.abc import Callable
from typing import NamedTuple

LIFE_S = 60.0
"""Seconds after which a lock that is not renewed expires (rocketmq.broker.rebalance.lockMaxLiveTime)."""


class QueueName(NamedTuple):
    """A queue as named in requests and answers; the order of the fields is fastjson's."""

    broker_name: str
    queue_id: int
    topic: str


class _Lock(NamedTuple):
    client_id: str
    renewed: float


class QueueLocks:
    """The queue locks of all groups."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._locks: dict[str, dict[QueueName, _Lock]] = {}

    def lock(self, group: str, queues: set[QueueName], client_id: str) -> set[QueueName]:
        """Locks free queues and renews the client's locks; returns the given queues that the client now holds."""
        now = self._now()
        locks = self._locks.setdefault(group, {})
        for queue in queues:
            owner = locks.get(queue)
            if owner is None or owner.client_id == client_id or now - owner.renewed > LIFE_S:
                locks[queue] = _Lock(client_id, now)
        return {queue for queue in queues if locks[queue].client_id == client_id}

    def unlock(self, group: str, queues: set[QueueName], client_id: str) -> None:
        """Unlocks the given queues where the client holds the lock."""
        locks = self._locks.get(group, {})
        for queue in queues:
            owner = locks.get(queue)
            if owner is not None and owner.client_id == client_id:
                del locks[queue]

    def any_held(self, group: str) -> bool:
        """Whether a group holds a lock that has not expired."""
        now = self._now()
        return any(now - lock.renewed <= LIFE_S for lock in self._locks.get(group, {}).values())
