"""What `mqtool recover` does once its options are read."""

from pathlib import Path
from typing import Any

from mqtool.cli import explain_start_run
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format, Invocation
from mqtool.cli.output import Output
from mqtool.cli.recover_schema import RECOVER
from mqtool.engine import Compat, RecoveryMode
from mqtool.engine.detect import is_new, options_for
from mqtool.engine.recovery import predict
from mqtool.engine.store import open_store
from mqtool.errors import NotAStoreError


def run(
    invocation: Invocation,
    path: Path,
    config: Path | None,
    output_format: Format,
    *,
    mode: str,
    broker: str | None,
    dry_run: bool,
) -> ExitCode:
    """Recovers and prints."""
    if is_new(path):
        raise NotAStoreError("nothing is there to be recovered", path)
    options = options_for(path, config, Compat(broker) if broker else None, recovery=RecoveryMode(mode))
    release = options.compat.value
    if dry_run:
        return explain_start_run.run(
            invocation, path, config, output_format, broker=release, read_log=True, heap_bytes=None
        )
    expected = predict(path, release, config)
    with open_store(path, options, background=False) as store:
        found = store.recovered
    lost = [
        {"queue": name, "first": first, "last": last}
        for name, ranges in (expected.lost or {}).items()
        for first, last in ranges
    ]
    document: dict[str, Any] = {
        "path": str(path),
        "release": release,
        "mode": mode,
        "clean_stop": found.clean_stop,
        "scan_from": found.scanned_from,
        "end": found.end,
        "records": found.records,
        "dispatched": found.dispatched,
        "lost": lost,
        "deleted": found.deleted,
        "quarantined": found.quarantined,
        "cut_messages": found.cut_messages,
        "why": found.why,
        "accepted": found.accepted,
    }
    return Output(invocation, RECOVER, output_format).document(document, ExitCode.NO if lost else ExitCode.OK)
