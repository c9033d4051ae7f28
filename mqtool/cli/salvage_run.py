"""What `mqtool salvage` does once its options are read."""

from pathlib import Path

from mqtool.cli import kind_write
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format, Invocation
from mqtool.cli.options import ProgressMode
from mqtool.cli.output import Output
from mqtool.cli.progress import progress
from mqtool.cli.salvage_schema import SALVAGE
from mqtool.errors import UsageError
from mqtool.rebuild.run import log_bytes
from mqtool.repair.salvage import Options, salvage
from mqtool.siblings.registry import recognise
from mqtool.store.readable_parts import UnreadableParts
from mqtool.store.store import open_store


def run(
    invocation: Invocation, path: Path, target: Path, options: Options, output_format: Format, mode: ProgressMode
) -> ExitCode:
    """Salvages and reports."""
    kind = recognise(path)
    if kind is not None:
        if options.copies or options.compact or options.map_file:
            raise UsageError(f"--with, --compact and --map are not for a store of kind {kind.name}")
        return kind_write.salvage(invocation, kind, path, target, output_format)
    with open_store(path, options.config) as store:
        store.commit_log.unreadable = UnreadableParts()
        total = log_bytes(store)
    with progress(mode, "salvage", 0, total) as bar:
        found = salvage(path, target, options, lambda done: bar.update(min(max(done, 0), total)))
    code = ExitCode.OK if found.is_complete else ExitCode.NO
    return Output(invocation, SALVAGE, output_format).document(found.as_dict(), code)
