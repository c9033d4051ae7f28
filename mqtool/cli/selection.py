"""Selection: the shared options as the library's keywords, and the check that what `--topic` and `--queue` name exists.

An empty result for a misspelt name would look clean.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from mqtool.cli import ranges
from mqtool.cli.exits import NotFoundError
from mqtool.commands import Opened, command
from mqtool.errors import UsageError

if TYPE_CHECKING:
    from mqtool.store import Store
    from mqtool.store.known_file import KnownFile

_LISTED = 10


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
        """Returns arguments of `Store.messages`, without `limit`; first and end of the log are for relative ranges."""
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
        """Returns the values of `--property`; raises UsageError if one is not NAME=VALUE."""
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


def require_selected(stores: Iterable[Store], topics: Sequence[str] | None, queue_id: int | None = None) -> None:
    """Checks that topics (globs; none for all) and queue exist in a store; stores may be open only until the next.

    Raises NotFoundError if a glob matches no topic, or none of the topics has the queue.
    """
    from mqtool.store.target import LogFiles
    from mqtool.store.topics import unmatched

    paths: list[str] = []
    missing, has_queue = list(topics or ()), queue_id is None
    hint = "leave --topic and --queue out to see what it holds"
    for store in stores if missing or not has_queue else ():
        if not isinstance(store, LogFiles) and not paths:
            hint = f"`{command('info', Opened(store.path, store.config.file))}` lists topics and queues"
        paths.append(str(store.path))
        has_queue = has_queue or _has_queue(store, topics or (), queue_id)
        missing = unmatched(store, missing)
        if has_queue and not missing:
            return
    if missing:
        raise NotFoundError(f"{', '.join(paths)}: no topic matches {', '.join(map(repr, missing))}; {hint}")
    if not has_queue:
        raise NotFoundError(f"{', '.join(paths)}: no queue {queue_id} in the selected topics; {hint}")


def require_selected_files(files: Sequence[KnownFile], topics: Sequence[str] | None, queue_id: int | None) -> None:
    """Checks files without messages as `require_selected` does stores; raises UsageError if they belong to no queue."""
    from mqtool.store.log.selection import Globs

    if not topics and queue_id is None:
        return
    named = [file for file in files if file.topic is not None]
    if not named:
        raise UsageError(
            f"{files[0].path}: --topic and --queue select queues, and files of kind {files[0].kind} "
            "belong to none; leave them out"
        )
    known = sorted({file.topic for file in named if file.topic is not None})
    missing = [glob for glob in topics or () if not any(map(Globs([glob]).matches, known))]
    has = f"there are {', '.join(known[:_LISTED])}{', …' if len(known) > _LISTED else ''}"
    if missing:
        raise NotFoundError(f"no topic matches {', '.join(map(repr, missing))}; {has}; check the spelling")
    match = Globs(topics)
    if queue_id not in (None, *(file.queue_id for file in named if match.matches(file.topic or ""))):
        raise NotFoundError(f"no queue {queue_id} in the selected topics; {has}; leave --queue out to see its queues")


def _has_queue(store: Store, topics: Sequence[str], queue_id: int | None) -> bool:
    from mqtool.store import Message
    from mqtool.store.log.selection import Globs

    globs = Globs(topics)
    if any(queue.queue_id == queue_id and globs.matches(queue.topic) for queue in store.disk_queues()):
        return True
    messages = store.messages(topics=tuple(topics), queue_id=queue_id, limit=1, check_crc=False)
    return any(isinstance(item, Message) for item in messages)
