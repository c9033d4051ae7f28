"""What `mqtool report` does once its options are read."""

from pathlib import Path

from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format, Invocation
from mqtool.cli.options import ProgressMode
from mqtool.cli.output import Output
from mqtool.cli.progress import progress
from mqtool.cli.ranges import parse_rate
from mqtool.cli.report_schema import REPORT
from mqtool.cli.selected import require_selected
from mqtool.cli.verify_run import SMALL, outside, write_whole
from mqtool.cli.verify_steps import next_steps
from mqtool.errors import UsageError
from mqtool.report import report
from mqtool.store import open_store
from mqtool.store.processes import available
from mqtool.verify import Options, Severity


def run(
    invocation: Invocation,
    path: Path,
    config: Path | None,
    output: Path,
    output_format: Format,
    mode: ProgressMode,
    *,
    topics: tuple[str, ...] | None,
    jobs: int | None,
    throttle: str | None,
) -> ExitCode:
    """Checks a store, writes the page and says where."""
    if not output.parent.is_dir():
        raise UsageError(f"{output}: there is no directory {output.parent}; name a file in one that exists")
    limit = parse_rate(throttle)
    with open_store(path, config) as store:
        outside(path, output)
        require_selected([store], topics)
        size = sum(segment.size for segment in store.commit_log.segments)
        options = Options(topics, jobs or (1 if size < SMALL else available()), limit)
        with progress(mode, "report", 0, size) as bar:
            page, found = report(
                store, options, lambda done, total: bar.update(size * done // max(1, total)), next_steps
            )
            bar.update(size)
    data = page.encode("utf-8", "replace")
    write_whole(output, data)
    document = {
        "store": str(path),
        "report": str(output),
        "size": len(data),
        "status": found.state.value,
        "errors": found.count(Severity.ERROR),
        "warnings": found.count(Severity.WARNING),
        "notes": found.count(Severity.NOTE),
        "lost_messages": found.losses.messages,
        "lost_bytes": found.losses.bytes,
    }
    code = ExitCode.NO if document["errors"] else ExitCode.OK
    return Output(invocation, REPORT, output_format).document(document, code)
