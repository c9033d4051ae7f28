"""Checks that what `--topic` and `--queue` select exists: an empty result for a misspelt name looks clean."""

from collections.abc import Iterable, Sequence

from mqtool.cli.exits import NotFoundError
from mqtool.commands import command
from mqtool.store import Store
from mqtool.store.globs import Globs
from mqtool.store.message import Message
from mqtool.store.topics import unmatched


def require_selected(stores: Iterable[Store], topics: Sequence[str] | None, queue_id: int | None = None) -> None:
    """Checks that topics and queue exist in at least one store.

    Args:
        stores: opened one after the other, each only until the next.
        topics: globs; None or empty for all topics.
        queue_id: None for all queues.

    Raises:
        NotFoundError: a glob matches no topic, or none of the topics has the queue.
    """
    missing, has_queue, paths = list(topics or ()), queue_id is None, []
    for store in stores if missing or not has_queue else ():
        paths.append(str(store.path))
        has_queue = has_queue or _has_queue(store, topics or (), queue_id)
        missing = unmatched(store, missing)
        if has_queue and not missing:
            return
    hint = f"`{command('info', paths[0])}` lists topics and queues" if paths else ""
    if missing:
        raise NotFoundError(f"{', '.join(paths)}: no topic matches {', '.join(map(repr, missing))}; {hint}")
    if not has_queue:
        raise NotFoundError(f"{', '.join(paths)}: no queue {queue_id} in the selected topics; {hint}")


def _has_queue(store: Store, topics: Sequence[str], queue_id: int | None) -> bool:
    globs = Globs(topics)
    if any(queue.queue_id == queue_id and globs.matches(queue.topic) for queue in store.disk_queues()):
        return True
    found = store.messages(topics=tuple(topics), queue_id=queue_id, limit=1, check_crc=False)
    return any(isinstance(item, Message) for item in found)
