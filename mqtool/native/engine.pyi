# The protocols have every attribute that engine.pyx reads or sets by name in objects of Python; a test compares them.

from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any, Generic, Protocol, TypeVar

from numpy import int32, int64, uint8, uint64
from numpy.typing import NDArray

_T = TypeVar("_T")

class Pinned(Protocol):
    pinned: memoryview | None

class MappedFile(Protocol):
    file_from_offset: int
    size: int
    wrote: int
    store_timestamp: int
    available: bool
    @property
    def file(self) -> Pinned: ...
    @property
    def read_position(self) -> int: ...

class MappedFiles(Protocol):
    @property
    def files(self) -> tuple[MappedFile, ...]: ...

class QueueState(Protocol):
    is_plain: bool
    topic_field: bytes
    next_offset: int
    magic_code: int
    queue_id: int

class QueueOffsets(Protocol):
    @property
    def states(self) -> Mapping[tuple[str, int], QueueState]: ...

class CommitLog(Protocol):
    lock: Lock
    born_host: bytes
    store_host: bytes
    longest_body: int
    longest: int
    limit: int
    buffer: Any
    @property
    def offsets(self) -> QueueOffsets: ...
    @property
    def file(self) -> MappedFile | None: ...

class RunningFlags(Protocol):
    refuses: bool

class ConsumeQueue(Protocol):
    min_offset: int
    @property
    def files(self) -> MappedFiles: ...

class Limited(Protocol):
    @property
    def limits(self) -> tuple[int, int, int, int, int, int | None]: ...

class IndexHeader(Protocol):
    @property
    def begin_timestamp(self) -> int: ...
    @property
    def end_timestamp(self) -> int: ...
    @property
    def end_physical_offset(self) -> int: ...
    @property
    def index_count(self) -> int: ...

class IndexWriter(Protocol):
    slots: int
    entries: int
    @property
    def header(self) -> IndexHeader: ...
    @property
    def file(self) -> Pinned: ...

class Index(Protocol):
    @property
    def files(self) -> tuple[IndexWriter, ...]: ...

class Appender(Generic[_T]):
    def __init__(
        self,
        log: CommitLog,
        flags: RunningFlags,
        clock: Callable[[], int] | None,
        result_kind: type[_T],
        status: object,
        append_status: object,
        message_kind: type[tuple[bytes, bytes, int]],
        slow_bits: int,
    ) -> None: ...
    def put(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: bytes,
        flag: int,
        sys_flag: int,
        born_timestamp: int | None,
        born_host: bytes | None,
        store_host: bytes | None,
        reconsume_times: int,
        prepared_transaction_offset: int,
    ) -> _T | None: ...
    def put_batch(
        self,
        topic: str,
        queue_id: int,
        messages: object,
        sys_flag: int,
        born_timestamp: int | None,
        born_host: bytes | None,
        store_host: bytes | None,
        reconsume_times: int,
    ) -> _T | None: ...

def find_bytes(items: tuple[object, ...], addresses: NDArray[uint64], sizes: NDArray[int64]) -> bool: ...
def encode(
    target: NDArray[uint8],
    at: int,
    base: int,
    now: int,
    born_now: bool,
    first: int,
    count: int,
    body_at: NDArray[uint64],
    body_size: NDArray[int64],
    properties_at: NDArray[uint64],
    properties_size: NDArray[int64],
    heads: NDArray[uint8],
    head_step: int,
    queue_of: NDArray[int32],
    topics: NDArray[uint8],
    topic_starts: NDArray[int64],
    length_sizes: NDArray[int64],
    magic_codes: NDArray[int64],
    queue_ids: NDArray[int64],
    next_offsets: NDArray[int64],
    columns: NDArray[int64],
) -> None: ...

class Getter(Generic[_T]):
    def __init__(
        self,
        queues: Mapping[tuple[str, int], object],
        queue_kind: type[ConsumeQueue],
        limited: Limited,
        log: MappedFiles,
        found: object,
        result_kind: type[_T],
        views: Callable[[memoryview, int, bytes, int, int], Sequence[memoryview]],
        shortest: int,
        longest: int,
    ) -> None: ...
    def get(self, topic: str, queue_id: int, queue_offset: int, max_number: int, max_bytes: int) -> _T | None: ...

def join_records(units: bytes, count: int, pin: memoryview, base: int, size: int) -> bytes: ...
def copy_records(
    units: bytes, count: int, pin: memoryview, base: int, size: int, target: bytearray, at: int
) -> int: ...

class Finder(Generic[_T]):
    def __init__(self, index: Index, log: MappedFiles, result_kind: type[_T]) -> None: ...
    def query(self, topic: str, key: str, max_number: int, begin_timestamp: int, end_timestamp: int) -> _T | None: ...
