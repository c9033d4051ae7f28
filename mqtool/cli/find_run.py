"""What `mqtool find` does once its options are read."""

from pathlib import Path

from mqtool.cli import kind_run
from mqtool.cli.exits import ExitCode
from mqtool.cli.filters import Filters
from mqtool.cli.invocation import Invocation, note
from mqtool.cli.message_stream import MessageStream
from mqtool.cli.message_view import MessageView
from mqtool.cli.options import WayName
from mqtool.cli.output import Output
from mqtool.cli.progress import progress
from mqtool.cli.report import Report
from mqtool.cli.selected import require_selected
from mqtool.errors import UsageError
from mqtool.siblings.registry import recognise
from mqtool.store import open_store
from mqtool.store.find import Way, find_messages

_CRITERIA = ("key", "unique_key", "tag", "user_property", "grep", "time", "offset", "topic", "queue")


def run(
    invocation: Invocation, path: Path, config: Path | None, filters: Filters, view: MessageView, way: WayName
) -> ExitCode:
    """Prints the messages that match."""
    if all(getattr(filters, name) is None for name in _CRITERIA):
        raise UsageError("nothing to find: give --key, --tag, --grep, …; `mqtool dump` prints every message")
    kind = recognise(path)
    if kind is not None:
        return kind_run.find(invocation, kind, path, filters, view)
    report = Report()
    with open_store(path, config) as store:
        require_selected([store], filters.topic, filters.queue)
        log = store.commit_log
        rows = view.rows()
        output = Output(invocation, rows.schema, view.format)
        found = find_messages(store, Way(way), **filters.keywords(log.min_offset, log.max_offset))
        note(f"looking by {', and '.join(found.ways)}")
        stream = MessageStream(report, filters.limit, filters.byte_limit())
        with progress(view.progress, "find", log.min_offset, log.max_offset) as bar:
            stream.write(found.items, rows, output, bar, view.damage)
        if not stream.passed:
            note("no message matches")
            report.missing()
        return output.finish(report.code())
