"""Decides the size of a store's files, for each kind from all of its files together. No other code does.

A file that was emptied, cut, extended, or created without its size says nothing about the others. A possible size is
never 0 and always a whole number of units.
"""

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

from msgspec import Struct

from mqtool.errors import UsageError
from mqtool.formats import consume_queue, java, timer
from mqtool.store.config.broker_config import BrokerConfig
from mqtool.store.files import MappedFile


class KnownSize(Struct, frozen=True):
    """A size and where it comes from."""

    value: int  # in bytes
    evidence: str  # where it comes from, in words
    is_certain: bool = True  # false if as many files have another length, so that the damaged one may have been taken

    @property
    def doubt(self) -> str:
        """Why the size is not certain, and what to do; "" if it is."""
        if self.is_certain:
            return ""
        return f"{self.value} bytes may be the wrong file size: {self.evidence}; give the broker.conf with --config"


class FileSize(Struct, frozen=True):
    """The possible sizes of files of one kind."""

    directory: str  # of the store, for messages
    key: str  # the broker's key
    minimum: int  # size in bytes of the smallest useful file
    unit: int = 1  # size in bytes of a unit; a file has a whole number of them
    default: int = 0  # the broker's default, 0 if it does not matter

    def is_possible(self, size: int) -> bool:
        """Whether files can have this size in bytes."""
        return self.minimum <= size <= java.INT_MAX and size % self.unit == 0

    def decide(self, config: BrokerConfig, files: Iterable[MappedFile], oddities: list[str]) -> KnownSize | None:
        """Returns the size of all files of the kind, None if neither files nor configuration show it.

        The configuration is decisive; then the majority of files whose name and length agree. Between two lengths that
        as many files have, the distance of the names or the broker's default decides. Last, that distance alone.

        Args:
            oddities: receives contradictions, in words.

        Raises:
            UsageError: the configured size is impossible.
        """
        listed = list(files)
        counted = Counter(file.size for file in listed)
        configured = self._configured(config)
        if configured is not None:
            others = sum(count for size, count in counted.items() if size != configured)
            if others:
                oddities.append(f"{others} {self.directory} file(s) are not of the configured {configured} bytes")
            return KnownSize(configured, "configuration")
        if len(counted) > 1:
            common = counted.most_common(_LISTED)
            sizes = ", ".join(f"{n} × {s} bytes" for s, n in sorted(common))
            more = f" and {len(counted) - len(common)} other sizes" if len(counted) > len(common) else ""
            oddities.append(f"{self.directory} files differ in size: {sizes}{more}")
        return self._by_lengths(listed, counted) or self._by_names(listed)

    def _configured(self, config: BrokerConfig) -> int | None:
        value = config.integer(self.key)
        if value is not None and not self.minimum <= value <= java.INT_MAX:
            where = config.source or "configuration"
            bound = f"at least {self.minimum}" if value < self.minimum else f"at most {java.INT_MAX}"
            raise UsageError(f"{where}: {self.key}: expected {bound}, found {value}")
        if value is not None and self is CONSUME_QUEUE:
            return consume_queue.round_up_file_size(value)
        return value

    def _by_lengths(self, files: list[MappedFile], counted: "Counter[int]") -> KnownSize | None:
        likely = [size for size, _ in counted.most_common() if self.is_possible(size)][:_LISTED]
        if not likely:
            return None

        named = self._step(files)

        def agreeing(size: int) -> tuple[int, int, bool, bool]:
            fitting = [file for file in files if file.base % size == 0]
            return sum(file.size == size for file in fitting), len(fitting), size == named, size == self.default

        size = max(likely, key=lambda size: (*agreeing(size), size))
        rivals = sorted(other for other in likely if other != size and agreeing(other) == agreeing(size))
        evidence = f"{counted[size]} of {len(files)} {self.directory} files"
        if rivals:
            evidence += f", and as many have {' or '.join(map(str, rivals))} bytes"
        return KnownSize(size, evidence, is_certain=not rivals)

    def _by_names(self, files: list[MappedFile]) -> KnownSize | None:
        step = self._step(files)
        return None if step is None else KnownSize(step, f"the names of {len(files)} {self.directory} files")

    def _step(self, files: list[MappedFile]) -> int | None:
        """Returns the most frequent distance between the names of neighbouring files that is a possible size."""
        bases = sorted({file.base for file in files})
        steps = Counter(after - before for before, after in pairwise(bases))
        possible = [(count, step) for step, count in steps.items() if self.is_possible(step)]
        return max(possible)[1] if possible else None


_LISTED = 20
"""Sizes that are looked at: where files have more than that many, most of them are damaged."""

COMMIT_LOG = FileSize("commitlog", "mappedFileSizeCommitLog", 128, default=1 << 30)
CONSUME_QUEUE = FileSize(
    "consumequeue",
    "mappedFileSizeConsumeQueue",
    consume_queue.UNIT_SIZE,
    consume_queue.UNIT_SIZE,
    consume_queue.DEFAULT_FILE_SIZE,
)
CONSUME_QUEUE_EXT = FileSize(
    "consumequeue_ext",
    "mappedFileSizeConsumeQueueExt",
    consume_queue.EXT_HEAD_SIZE + consume_queue.EXT_END_BLANK_SIZE,
    default=consume_queue.DEFAULT_EXT_FILE_SIZE,
)
BATCH_CONSUME_QUEUE = FileSize(
    "batchconsumequeue",
    "mapperFileSizeBatchConsumeQueue",
    consume_queue.BATCH_UNIT_SIZE,
    default=consume_queue.DEFAULT_BATCH_FILE_SIZE,
)
TIMER_LOG = FileSize("timerlog", "mappedFileSizeTimerLog", timer.LOG_UNIT_SIZE + timer.LOG_END_SIZE)
_COMPACTION_QUEUE = FileSize(
    "compaction/compactionCq",
    "compactionCqMappedFileSize",
    consume_queue.BATCH_UNIT_SIZE,
    default=10 << 20,
)
_COMPACTION_LOG = FileSize("compaction/compactionLog", "compactionMappedFileSize", 128, default=100 << 20)


def compaction_sizes(config: BrokerConfig, logs: Iterable[MappedFile], queues: Iterable[MappedFile]) -> tuple[int, int]:
    """Returns the sizes of files of compacted topics: of their logs and of their queues.

    Both are rounded, so that the configured sizes are not those of the files (CompactionLog.getCompactionLogSize,
    5.5.0). Raises UsageError if a configured one is impossible.
    """
    unit = consume_queue.BATCH_UNIT_SIZE
    queue = _COMPACTION_QUEUE.decide(config, queues, [])
    queue_size = (queue.value if queue else _COMPACTION_QUEUE.default) // unit * unit
    log = _COMPACTION_LOG.decide(config, logs, [])
    if log is not None and config.integer(_COMPACTION_LOG.key) is None:
        return log.value, queue_size
    count, rest = divmod(log.value if log else _COMPACTION_LOG.default, queue_size)
    if count < 5:
        return queue_size * 5, queue_size
    return queue_size * (count if 0 < rest < queue_size >> 1 else count + 1), queue_size
