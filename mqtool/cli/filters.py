"""The shared selection options as the library's selection keywords."""

from typing import Any

from msgspec import Struct

from mqtool.cli import ranges
from mqtool.errors import UsageError


class Filters(Struct, frozen=True):
    """Values of the options, as text; see `options`."""

    offset: str | None = None
    time: str | None = None
    topic: list[str] | None = None
    queue: int | None = None
    tag: list[str] | None = None
    key: list[str] | None = None
    unique_key: list[str] | None = None
    user_property: list[str] | None = None
    grep: str | None = None
    limit: int | None = None
    max_bytes: str | None = None

    def range(self) -> ranges.Range:
        """Returns the value of `-o`."""
        return ranges.Range() if self.offset is None else ranges.parse_range(self.offset)

    def byte_limit(self) -> int | None:
        """Returns the value of `--max-bytes`."""
        return None if self.max_bytes is None else ranges.parse_size(self.max_bytes)

    def keywords(self, first: int, end: int) -> dict[str, Any]:
        """Returns arguments of `Store.messages`, without `limit`.

        Args:
            first: smallest physical offset, for relative ranges.
            end: one past the largest.
        """
        offsets = self.range()
        start_at, end_at = offsets.offsets(first, end)
        begin, until = self._times(offsets)
        arguments: dict[str, Any] = {
            "start": start_at,
            "end": end_at,
            "begin_time": begin,
            "end_time": until,
            "topics": self.topic or (),
            "queue_id": self.queue,
            "tags": self.tag or (),
            "keys": self.key or (),
            "unique_keys": self.unique_key or (),
            "properties": self.properties(),
            "grep": None if self.grep is None else self.grep.encode("utf-8", "surrogateescape"),
        }
        return {name: value for name, value in arguments.items() if value not in (None, (), {})}

    def _times(self, offsets: ranges.Range) -> tuple[int | None, int | None]:
        begin, until = (None, None) if self.time is None else ranges.parse_times(self.time)
        first, last = offsets.times()
        begins = [time for time in (begin, first) if time is not None]
        ends = [time for time in (until, last) if time is not None]
        return max(begins, default=None), min(ends, default=None)

    def properties(self) -> dict[str, str]:
        """Returns the values of `--property`.

        Raises:
            UsageError: one is not NAME=VALUE.
        """
        values = {}
        for text in self.user_property or ():
            name, equals, value = text.partition("=")
            if not (name and equals):
                raise UsageError(f"property {text!r}: expected NAME=VALUE")
            values[name] = value
        return values

    def refuse(self, *names: str, why: str) -> None:
        """Raises UsageError if one of these options was given."""
        for name in names:
            if getattr(self, name) is not None:
                spelling = "property" if name == "user_property" else name.replace("_", "-")
                raise UsageError(f"--{spelling} {why}")
