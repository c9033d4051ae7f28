"""Checks that what `--topic` and `--queue` select exists: an empty result for a misspelt name looks clean."""

from collections.abc import Iterable, Sequence

from mqtool.cli.exits import NotFoundError
from mqtool.commands import Opened, command
from mqtool.errors import UsageError
from mqtool.store import Store
from mqtool.store.globs import Globs
from mqtool.store.known_file import KnownFile
from mqtool.store.log.message import Message
from mqtool.store.target import LogFiles
from mqtool.store.topics import unmatched

_LISTED = 10


def require_selected(stores: Iterable[Store], topics: Sequence[str] | None, queue_id: int | None = None) -> None:
    """Checks that topics and queue exist in at least one store.

    Args:
        stores: opened one after the other, each only until the next.
        topics: globs; None or empty for all topics.
        queue_id: None for all queues.

    Raises:
        NotFoundError: a glob matches no topic, or none of the topics has the queue.
    """
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
    """Checks that topics and queue exist among files without messages; arguments as for `require_selected`.

    Raises:
        NotFoundError: a glob matches no topic, or none of the topics has the queue.
        UsageError: the files belong to no queue.
    """
    if not topics and queue_id is None:
        return
    named = [file for file in files if file.topic is not None]
    if not named:
        raise UsageError(
            f"{files[0].path}: --topic and --queue select queues, and files of kind {files[0].kind} in this place "
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
    globs = Globs(topics)
    if any(queue.queue_id == queue_id and globs.matches(queue.topic) for queue in store.disk_queues()):
        return True
    messages = store.messages(topics=tuple(topics), queue_id=queue_id, limit=1, check_crc=False)
    return any(isinstance(item, Message) for item in messages)
