"""Input and output of dispatch: its rules, and columns of queue units and index keys."""

from collections.abc import Iterator
from typing import Self

import numpy as np
from msgspec import Struct, field

from mqtool.formats.service_records import DELAY_LEVELS, parse_delay_levels


class DispatchRules(Struct, frozen=True):
    """Settings of a broker that change dispatch."""

    index_tags: bool = True  # TAGS gets an index entry too (5.5)
    # INNER_MULTI_DISPATCH is followed (enableMultiDispatch). Records have the property with the offsets only if the
    # broker had this enabled.
    multi_dispatch: bool = True
    lmq_everywhere: bool = False  # also for retry, system and schedule topics (4.9)
    light_queues: bool = True  # names that begin with `%LMQ%` mean queue 0 (enableLmq)
    # Further queues with a slash in their name get no unit (5.5). False lists them too, for callers that report that
    # such a queue cannot be created.
    drops_paths: bool = False
    delay_levels: tuple[int, ...] = parse_delay_levels(DELAY_LEVELS)  # delay of each level in ms
    # Topics with BatchConsumeQueues (topic attribute queue.type=BatchCQ).
    batch_topics: frozenset[str] = field(default_factory=frozenset)


def rules_for(
    release: tuple[int, ...],
    *,
    multi_dispatch: bool,
    delay_levels: tuple[int, ...],
    batch_topics: frozenset[str] = frozenset(),
    light_queues: bool = True,
    drops_paths: bool = False,
) -> DispatchRules:
    """Returns the rules of a release.

    Args:
        release: numbers of the broker's release; for a release that was detected, the one that is assumed for it
            (`formats.release.assumed_release`): a store is opened by that one next.
        multi_dispatch, delay_levels, batch_topics, light_queues, drops_paths: see `DispatchRules`.
    """
    return DispatchRules(
        index_tags=release >= (5, 5),
        multi_dispatch=multi_dispatch,
        lmq_everywhere=release < (5,),
        light_queues=light_queues,
        drops_paths=drops_paths,
        delay_levels=delay_levels,
        batch_topics=batch_topics,
    )


STORED_FIELDS = ("physical_offset", "size", "tags_code", "store_timestamp")
"""Fields of `QueueUnits` that units store, in their order; a ConsumeQueue has the first three."""
BATCH_FIELDS = (*STORED_FIELDS, "queue_offset", "batch_size")
"""Fields of `QueueUnits` in the order of `BatchConsumeQueueUnit`."""


class _Columns(Struct, frozen=True):
    """Rows as columns of equal length, which are the fields of a subclass."""

    row: np.ndarray  # int64, the frame of each row

    def __len__(self) -> int:
        return len(self.row)

    def select(self, which: "np.ndarray | slice") -> Self:
        """Returns the rows that a mask, an index array or a slice chooses."""
        return type(self)(*(getattr(self, name)[which] for name in self.__struct_fields__))

    def tuples(self, *names: str) -> Iterator[tuple[int, ...]]:
        """Yields some fields of each row."""
        return zip(*(getattr(self, name).tolist() for name in names), strict=True)


class QueueUnits(_Columns, frozen=True):
    """Units as columns of equal length, in the order in which the broker writes them."""

    row: np.ndarray  # int64, the frame of each unit; a frame has several units if it is dispatched to LMQs
    topic: np.ndarray  # int32, number in `Dispatcher.topics`
    queue_id: np.ndarray  # int32
    queue_offset: np.ndarray  # int64; in a BatchConsumeQueue that of the record's first message
    physical_offset: np.ndarray  # int64, as the record states it
    size: np.ndarray  # int32, total_size
    tags_code: np.ndarray  # int64; never an address in an extension
    store_timestamp: np.ndarray  # int64 ms
    batch_size: np.ndarray  # int16, messages in the record; more than 1 only in inner batches


class IndexKeys(_Columns, frozen=True):
    """Index keys as columns, in the broker's order: for each record the unique key, the words of KEYS, TAGS."""

    row: np.ndarray  # int64, the frame of each key; ascending
    key_hash: np.ndarray  # int32, as an index entry stores it
    physical_offset: np.ndarray  # int64, as the record states it
    store_timestamp: np.ndarray  # int64 ms


class Oddity(Struct, frozen=True):
    """A record that the broker could not dispatch as it is. Its plain unit is built nevertheless."""

    physical_offset: int
    detail: str


class Dispatched(Struct, frozen=True):
    """Result of dispatching some frames."""

    topic: np.ndarray  # int32 per frame, number in `Dispatcher.topics`
    units: QueueUnits  # and keys: for the queues and for the index
    keys: IndexKeys
    oddities: tuple[Oddity, ...]  # records that no broker can have written, or that no broker can read
    has_batches: bool  # whether a record has INNER_BASE, a number that recovery parses too
