"""What `mqtool info` does once its options are read."""

from pathlib import Path
from typing import Any

from mqtool.cli import kind_run
from mqtool.cli.exits import ExitCode
from mqtool.cli.info_schema import INFO
from mqtool.cli.invocation import Format, Invocation
from mqtool.cli.message_rows import damage_row
from mqtool.cli.options import ProgressMode
from mqtool.cli.output import Output
from mqtool.cli.progress import progress
from mqtool.cli.report import Report
from mqtool.siblings.registry import recognise
from mqtool.store import Store, open_store
from mqtool.store.describe import deep_scan, describe
from mqtool.store.oddities import oddities

_LISTED = 1000
"""Damaged ranges in the output; the counts have all."""


def run(
    invocation: Invocation, path: Path, config: Path | None, output_format: Format, deep: ProgressMode | None
) -> ExitCode:
    """Describes a store; `deep` is the progress of a deep scan, None for none."""
    kind = recognise(path)
    if kind is not None:
        return kind_run.info(invocation, kind, path, output_format, deep=deep is not None)
    report = Report(lines=output_format in (Format.TABLE, Format.WIDE))
    with open_store(path, config) as store:
        unknown = store.go_on_without_unreadable()
        found = {**describe(store), "oddities": [*unknown, *oddities(store)]}
        if deep is not None:
            found["deep"] = _deep(store, deep, report)
        return Output(invocation, INFO, output_format).document(found, report.code())


def _deep(store: Store, mode: ProgressMode, report: Report) -> dict[str, Any]:
    log = store.commit_log
    with progress(mode, "info --deep", log.min_offset, log.max_offset) as bar:
        scan = deep_scan(store, bar.update)
        bar.update(log.max_offset)
    for damage in scan.damage:
        report.damage(damage)
    if log.tail.kind == "garbage":
        report.tail(log.tail)
    topics = [
        {"topic": topic, "messages": count, "size": size, "first_timestamp": first, "last_timestamp": last}
        for topic, (count, size, first, last) in sorted(scan.topics.items())
    ]
    return {
        "messages": sum(row["messages"] for row in topics),
        "size": sum(row["size"] for row in topics),
        "damaged_ranges": len(scan.damage),
        "damaged_bytes": sum(damage.end - damage.start for damage in scan.damage),
        "topics": topics,
        "damage": [damage_row(damage)["damage"] for damage in scan.damage[:_LISTED]],
    }
