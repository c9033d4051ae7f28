"""The first messages of a store: rows as `mqtool append` takes them. Docs page: docs/serve.md."""

from collections.abc import Container
from pathlib import Path

from mqtool.engine import MessageStore
from mqtool.errors import UsageError
from mqtool.ingest import bulk_ingest
from mqtool.ingest.bulk_ingest import Row
from mqtool.ingest.row_source import rows_of_lines


def append_seed(store: MessageStore, file: Path, typed: Container[str], host: bytes) -> None:
    """Appends the rows of a file, unless the store has messages, and adds their topics except `typed` ones.

    Rows without a store host get `host`. Raises UsageError if the file cannot be read, or names the first row that the
    store refuses; those before it are stored.
    """
    if store.max_physical_offset > 0:
        return
    queues: dict[str, int] = {}
    try:
        with file.open("rb") as lines:
            rows = rows_of_lines(lines, store.options)
            placed = (_stored_at(host, row) for row in rows)
            for ack in bulk_ingest.append(store, placed, bulk_ingest.PutValidator(store.options)):
                if ack.reason:
                    raise UsageError(f"--seed {file}: row {ack.number}: {ack.reason}")
                bulk_ingest.count_queue(queues, ack)
    except OSError as error:
        raise UsageError(f"--seed {file}: cannot be read: {error.strerror}") from error
    bulk_ingest.add_topics(store, {topic: count for topic, count in queues.items() if topic not in typed})


def _stored_at(host: bytes, row: Row) -> Row:
    message = row.message
    return row if message is None else row._replace(message=message._replace(store_host=message.store_host or host))
