"""`mqtool dump` of files that hold no messages: units, entries, slots, configuration."""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Any

from mqtool.cli import field_rows
from mqtool.cli.entry_rows import SCHEMAS
from mqtool.cli.exits import ExitCode
from mqtool.cli.filters import Filters
from mqtool.cli.invocation import Invocation
from mqtool.cli.message_view import MessageView
from mqtool.cli.output import Output
from mqtool.cli.ranges import Range
from mqtool.errors import UsageError
from mqtool.store import broker_config
from mqtool.store.broker_config import BrokerConfig
from mqtool.store.entries import ORDINALS, rows_of
from mqtool.store.fields import file_fields
from mqtool.store.file_kind import FileKind
from mqtool.store.known_file import KnownFile

_MESSAGES_ONLY = ("time", "tag", "key", "unique_key", "user_property", "grep", "max_bytes")

Rows = Iterator[dict[str, Any]]


def run(
    invocation: Invocation, files: list[KnownFile], config: Path | None, filters: Filters, view: MessageView
) -> ExitCode:
    """Dumps files of one kind."""
    filters.refuse(*_MESSAGES_ONLY, why="selects messages; these are files of another kind")
    if view.follow or view.explode:
        raise UsageError("--follow and --explode are for messages")
    if view.hex:
        filters.refuse("offset", why="does not go with --hex for these files")
    keys = broker_config.load(config)
    chosen = [file for file in files if _is_wanted(file, filters)]
    if view.hex:
        rows = field_rows.rows(found for file in chosen for found in file_fields(file, keys))
    else:
        rows = _selected(chosen, keys, filters)
    output = Output(invocation, field_rows.FIELD if view.hex else SCHEMAS[files[0].kind], view.format)
    output.rows(islice(rows, filters.limit))
    return output.finish()


def _is_wanted(file: KnownFile, filters: Filters) -> bool:
    if filters.queue is not None and file.queue_id != filters.queue:
        return False
    return not filters.topic or any(fnmatchcase(file.topic or "", glob) for glob in filters.topic)


def _selected(files: list[KnownFile], keys: BrokerConfig, filters: Filters) -> Rows:
    """Yields rows whose number lies in the range; the files of a queue are one series of numbers."""
    if not filters.offset or not files:
        for file in files:
            yield from rows_of(file, keys)
        return
    wanted = filters.range()
    if files[0].kind not in ORDINALS:
        raise UsageError(f"--offset does not apply to files of kind {files[0].kind}")
    if wanted.times() != (None, None):
        raise UsageError("a time range selects messages; these are files of another kind")
    series: dict[Path, list[KnownFile]] = {}
    for file in files:
        series.setdefault(file.path if file.kind is FileKind.INDEX_FILE else file.path.parent, []).append(file)
    for same in series.values():
        yield from _in_range(same, keys, wanted)


def _in_range(files: list[KnownFile], keys: BrokerConfig, wanted: Range) -> Rows:
    name = ORDINALS[files[0].kind]
    first, end = 0, 0
    for file in files:
        for row in rows_of(file, keys):
            first = row[name] if not end else first
            end = row[name] + 1
    low, high = wanted.offsets(first, end)
    for file in files:
        for row in rows_of(file, keys):
            if (low is None or row[name] >= low) and (high is None or row[name] < high):
                yield row
