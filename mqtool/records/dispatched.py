"""What dispatch is told, and what it answers: rules in, columns of queue units and index keys out."""

from dataclasses import dataclass, field

import numpy as np

from mqtool.formats.delay_levels import DELAY_LEVELS, parse_delay_levels


@dataclass(frozen=True)
class DispatchRules:
    """What a broker's release and settings change.

    Attributes:
        index_tags: TAGS gets an index entry too (5.5).
        multi_dispatch: INNER_MULTI_DISPATCH is followed (enableMultiDispatch). The property with the offsets is only
            there where the broker had it on.
        lmq_everywhere: also for retry, system and schedule topics (4.9).
        light_queues: `%LMQ%` names mean queue 0 (enableLmq).
        drops_paths: further queues whose name has a slash get no unit (5.5); False lists them with the others, for who
            has to say that a queue cannot be made.
        delay_levels: delay of each level in ms.
        batch_topics: topics with BatchConsumeQueues (topic attribute queue.type=BatchCQ).
    """

    index_tags: bool = True
    multi_dispatch: bool = True
    lmq_everywhere: bool = False
    light_queues: bool = True
    drops_paths: bool = False
    delay_levels: tuple[int, ...] = parse_delay_levels(DELAY_LEVELS)
    batch_topics: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True)
class QueueUnits:
    """Units as columns, in the order in which the broker writes them; the arrays are of one length.

    Attributes:
        row: int64, which frame each is for; a frame has several if it is dispatched to LMQs.
        topic: int32, number in `Dispatcher.topics`.
        queue_id: int32.
        queue_offset: int64; of the record's first message in a BatchConsumeQueue.
        physical_offset: int64, as the record states it.
        size: int32, total_size.
        tags_code: int64; an extension's address is not known here.
        store_timestamp: int64 ms.
        batch_size: int16, messages in the record: 1 but for inner batches.
    """

    row: np.ndarray
    topic: np.ndarray
    queue_id: np.ndarray
    queue_offset: np.ndarray
    physical_offset: np.ndarray
    size: np.ndarray
    tags_code: np.ndarray
    store_timestamp: np.ndarray
    batch_size: np.ndarray

    def __len__(self) -> int:
        return len(self.row)

    def select(self, which: "np.ndarray | slice") -> "QueueUnits":
        """Returns the units that a mask, an index array or a slice chooses."""
        return QueueUnits(*(getattr(self, name)[which] for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class IndexKeys:
    """Index keys as columns, in the broker's order: of each record the unique key, the words of KEYS, TAGS.

    Attributes:
        row: int64, which frame each is of; ascending.
        key_hash: int32, as an index entry stores it.
        physical_offset: int64, as the record states it.
        store_timestamp: int64 ms.
    """

    row: np.ndarray
    key_hash: np.ndarray
    physical_offset: np.ndarray
    store_timestamp: np.ndarray

    def __len__(self) -> int:
        return len(self.row)

    def select(self, which: "np.ndarray | slice") -> "IndexKeys":
        """Returns the keys that a mask, an index array or a slice chooses."""
        return IndexKeys(*(getattr(self, name)[which] for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class Oddity:
    """A record that the broker could not dispatch as it is; its plain unit is made all the same."""

    physical_offset: int
    detail: str


@dataclass(frozen=True, slots=True)
class Dispatched:
    """What becomes of some frames.

    Attributes:
        topic: int32 per frame, number in `Dispatcher.topics`.
        units, keys: for the queues and for the index.
        oddities: what no broker could have written, or could read.
        has_batches: whether some record has INNER_BASE, a number that recovery parses too.
    """

    topic: np.ndarray
    units: QueueUnits
    keys: IndexKeys
    oddities: tuple[Oddity, ...]
    has_batches: bool
