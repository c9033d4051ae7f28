"""New files of the content of other kinds of stores (`mqtool.siblings`): their `export`, `rebuild` and `salvage`."""

from collections.abc import Sequence
from pathlib import Path

from mqtool.cli import kind_rows
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format, Invocation, note
from mqtool.cli.output import Output
from mqtool.errors import UnsupportedFormatError, UsageError
from mqtool.siblings import base
from mqtool.siblings.registry import Kind
from mqtool.store.real_path import is_inside

_QUEUES = ("consumequeue", "all")
"""What can be rebuilt of another kind of store: its queues."""


def new_directory(store: Path, target: Path) -> None:
    """Passes if a target is new or empty, and lies outside of the store.

    Raises:
        UsageError: it does not.
    """
    if is_inside(target, store):
        raise UsageError(f"{target}: expected a directory outside of {store}: nothing is written into a store")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target}: expected a new or empty directory")


def export(invocation: Invocation, kind: Kind, path: Path, target: Path, output_format: Format) -> ExitCode:
    """Writes each table of a store as one Parquet file; ends with 1 if something could not be read."""
    from mqtool.siblings.export import export as write  # noqa: PLC0415 - pyarrow costs 100 ms at import

    new_directory(path, target)
    output = Output(invocation, kind_rows.EXPORT_KIND, output_format)
    damaged = False
    with kind.open(path) as opened:
        target.mkdir(parents=True, exist_ok=True)
        for table in opened.tables:
            damage: list[base.Damage] = []
            file = target / f"{table.name}.parquet"
            rows = write(opened, file, table.name, damage.append)
            for one in damage[:10]:
                note(f"damage: {one}")
            damaged = damaged or bool(damage)
            output.row({"table": table.name, "rows": rows, "damage": len(damage), "file": str(file)})
    return output.finish(ExitCode.NO if damaged else ExitCode.OK)


def rebuild(invocation: Invocation, kind: Kind, path: Path, out: Path, what: str, output_format: Format) -> ExitCode:
    """Writes a store's queues anew; ends with 1 if entries lead nowhere."""
    if what not in _QUEUES:
        raise UsageError(f"of a store of kind {kind.name} the queues can be rebuilt (consumequeue), not {what}")
    new_directory(path, out)
    with kind.open(path) as opened:
        rows = opened.rebuild(out)
    if rows is None:
        raise UnsupportedFormatError(f"{path}: a store of kind {kind.name} has nothing that could be rebuilt")
    return _told(Output(invocation, kind_rows.REBUILD_KIND, output_format), rows, "filled")


def salvage(invocation: Invocation, kind: Kind, path: Path, target: Path, output_format: Format) -> ExitCode:
    """Writes what each file still holds, and says how it was found; ends with 1 if there is damage."""
    new_directory(path, target)
    with kind.open(path) as opened:
        rows = opened.salvage(target)
    if rows is None:
        raise UnsupportedFormatError(f"{path}: nothing can be salvaged of a store of kind {kind.name}")
    return _told(Output(invocation, kind_rows.SALVAGE_KIND, output_format), rows, "damaged_bytes")


def _told(output: Output, rows: Sequence[base.Row], lost: str) -> ExitCode:
    """Prints what was written; the answer is no if a row counts anything as lost."""
    output.rows(iter(rows))
    return output.finish(ExitCode.NO if any(row[lost] for row in rows) else ExitCode.OK)
