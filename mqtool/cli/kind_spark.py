"""`mqtool export --spark` of a store of another kind: each table as a directory of Parquet files."""

from pathlib import Path

from mqtool.cli import kind_rows
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format, Invocation, note
from mqtool.cli.kind_write import new_directory
from mqtool.cli.output import Output
from mqtool.cli.spark_session import OnSpark, spark_session
from mqtool.siblings.registry import Kind

_SHOWN = 10


def export(
    invocation: Invocation, kind: Kind, path: Path, target: Path, spark: OnSpark, output_format: Format
) -> ExitCode:
    """Exports and prints; ends with 1 if something could not be read."""
    new_directory(path, target)
    output = Output(invocation, kind_rows.EXPORT_KIND, output_format)
    damaged = False
    with spark_session(spark) as session:
        from mqtool.spark.kinds import export_table  # noqa: PLC0415 - an extra

        for table in kind.tables:
            folder = target.absolute() / f"{table.name}.parquet"
            written = export_table(session, str(path.absolute()), table, folder)
            damage = [text for one in written for text in one.damage]
            for text in damage[:_SHOWN]:
                note(f"damage: {text}")
            damaged = damaged or bool(damage)
            rows = sum(one.rows for one in written)
            output.row({"table": table.name, "rows": rows, "damage": len(damage), "file": str(folder)})
    return output.finish(ExitCode.NO if damaged else ExitCode.OK)
