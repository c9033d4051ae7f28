"""Parked messages and timer slots, as used while the timer's files are rebuilt."""

from msgspec import Struct

from mqtool.formats import timer


class Parked(Struct, frozen=True):
    """A message in the timer topic: position of its record, deliver time, and identity."""

    queue_offset: int
    physical_offset: int
    size: int
    stored: int
    due: int
    key: str
    rolls: int
    is_delete: bool
    topic: str | None


class Placed(Struct, frozen=True):
    """A message and its slot, which it leaves at `due`, in ms; `done` if it has left the slot or must not enter it."""

    message: Parked
    write_time: int
    due: int
    magic: int
    done: bool


class Slot(Struct):
    """A slot of the wheel: its second and its chain of units."""

    time: int
    first: int = timer.NO_POSITION
    last: int = timer.NO_POSITION
    count: int = 0
