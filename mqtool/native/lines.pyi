from typing import TypeAlias

from _typeshed import ReadableBuffer
from numpy import int64, uint8
from numpy.typing import NDArray

_Bytes: TypeAlias = NDArray[uint8] | ReadableBuffer

def room_for(sizes: int, largest: int, count: int) -> int: ...
def json_lines(
    data: _Bytes,
    positions: NDArray[int64],
    mode: int,
    is_raw: bool,
    target: NDArray[uint8],
    ends: NDArray[int64],
) -> int: ...
