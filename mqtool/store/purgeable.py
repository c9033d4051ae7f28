"""The topics that can be left out of a copy of the log."""

from collections.abc import Sequence

from mqtool.errors import UsageError
from mqtool.formats import topics
from mqtool.store.globs import Globs
from mqtool.store.store import Store

_OF_THE_BROKER = (topics.SCHEDULE_TOPIC, topics.TIMER_TOPIC, topics.HALF_TOPIC, topics.OP_TOPIC)


def purgeable_topics(stores: Sequence[Store], globs: Sequence[str]) -> tuple[str, ...]:
    """Returns the topics selected by globs; a glob skips topics in which the broker keeps its own records.

    Args:
        stores: copies of one log; a topic in any of them counts.
        globs: at least one.

    Raises:
        UsageError: a glob selects no topic; a name is that of a topic with the broker's own records.
    """
    known = {name for store in stores for name in (*store.metadata.topics, *(q.topic for q in store.disk_queues()))}
    chosen: set[str] = set()
    for glob in globs:
        match = Globs([glob])
        found = {name for name in known if match.matches(name)}
        if not found:
            raise UsageError(f"{stores[0].path}: there is no topic {glob!r}; `mqtool info` lists topics")
        if found == {glob} and _is_of_the_broker(glob):
            raise UsageError(f"{glob} cannot be left out: the broker keeps messages of other topics in it")
        chosen |= {name for name in found if not _is_of_the_broker(name)}
    return tuple(sorted(chosen))


def _is_of_the_broker(name: str) -> bool:
    return name in _OF_THE_BROKER or name.startswith(topics.REVIVE_TOPIC_PREFIX)
