"""Which Parquet files of a directory have the messages to read.

In an export, the manifests decide: files may be there that are not published yet, or that another program wrote instead
of them, such as OPTIMIZE of Delta, which leaves the old ones. Elsewhere all files count but those whose name, or a
directory's, begins with `_` or `.`, as in Spark and Arrow.
"""

from collections.abc import Iterator
from pathlib import Path

from mqtool.errors import ExportError, StoreError
from mqtool.export.commit import META, is_published, message_commits
from mqtool.export.schema import Table
from mqtool.export.table_logs import CHANGED, ELSEWHERE, LOG, METADATA, NEVER, delta_files, local_table
from mqtool.export.tables import configured_table
from mqtool.export.target import LocalTarget
from mqtool.store.paths import named_below

_PARQUET = "*.parquet"


def holds_tables(directory: Path) -> bool:
    """Whether a directory is an export, or contains Parquet files."""
    return _root_of(directory) is not None or any(_visible(directory))


def message_files(path: Path) -> list[Path]:
    """Returns the Parquet files of messages, sorted; of an export those that it published.

    The path is a file, which is returned itself; an export, or a directory in its `messages`; or any other directory.
    Raises StoreError if the directory is not an export and contains no Parquet file; ExportError if a run of the export
    has not been completed, another program has changed its files or deleted rows, or whether one did is unknown;
    UsageError if the catalogue of an Iceberg table cannot be used.
    """
    if not path.is_dir():
        return [path]
    root = _root_of(path)
    if root is not None:
        below = named_below(root, path)
        return sorted(path / file.relative_to(below) for file in _published(root) if file.is_relative_to(below))
    tables = path / Table.MESSAGES if (path / Table.MESSAGES).is_dir() else path
    files = set(_visible(tables))
    if not files:
        raise StoreError("contains no Parquet file; give a directory of `mqtool export`", path)
    _require_in_delta(tables, dict.fromkeys(files, NEVER))
    if any((tables / METADATA).glob("*.metadata.json")):
        raise ExportError(
            "is an Iceberg table without its catalogue, so which files belong to it is unknown; give the directory of "
            "the export, or write the rows as Parquet into another one with the table's own engine, and give that",
            tables,
        )
    return sorted(files)


def _root_of(directory: Path) -> Path | None:
    """Returns the root of the export to which a directory belongs: it, or one above its `messages`."""
    if (directory / META).is_dir():
        return directory
    absolute = directory.absolute()
    above = (path.parent for path in (absolute, *absolute.parents) if path.name == Table.MESSAGES)
    return next((path for path in above if (path / META).is_dir()), None)


def _visible(directory: Path) -> Iterator[Path]:
    """Yields the Parquet files below a directory that readers do not ignore; `_a=1` is a partition."""
    for path in directory.rglob(_PARQUET):
        parts = path.relative_to(directory).parts
        if not any(part.startswith(".") or (part.startswith("_") and "=" not in part) for part in parts):
            yield path


def _published(root: Path) -> set[Path]:
    """Returns the published files of messages of an export.

    Raises ExportError if the last run was not completed, or the files are not those that were published.
    """
    target = LocalTarget(str(root))
    commits = message_commits(target)
    if not commits or not is_published(target, commits[-1].manifest):
        raise ExportError(
            "the last run of this export has not been completed; run the same `mqtool export` again, or wait for it",
            root,
        )
    entries = [(commit.manifest.state.sequence, entry) for commit in commits for entry in commit.files]
    files = {root / entry.path for _, entry in entries}
    messages = root / Table.MESSAGES
    for reason, others in (
        ("is missing, although the export published it", {file for file in files if not file.is_file()}),
        ("was not written by the export", set(_visible(messages)) - files),
    ):
        if others:
            raise ExportError(f"{reason}: {CHANGED}; {ELSEWHERE}", min(others))
    _require_in_delta(messages, {root / entry.path: sequence for sequence, entry in entries if entry.rows})
    _require_in_iceberg(root, [(sequence, entry.rows) for sequence, entry in entries])
    return files


def _require_in_delta(directory: Path, sequences: dict[Path, int]) -> None:
    """Raises ExportError unless the Delta table in a directory, if there is one, is known to have all rows of files.

    `sequences` are the numbers of their commits. A table may not have those of later commits yet.
    """
    if not (directory / LOG).is_dir():
        return
    table = delta_files(LocalTarget(str(directory)))
    for file, sequence in sorted(sequences.items()):
        if sequence <= table.sequence and file.relative_to(directory).as_posix() not in table.files:
            raise ExportError(
                f"is not, or not with all rows, in the Delta table any more: {CHANGED}; {ELSEWHERE}", file
            )


def _require_in_iceberg(root: Path, rows: list[tuple[int, int]]) -> None:
    """Raises ExportError unless the Iceberg table of an export, if there is one, is known to have all published rows.

    `rows` has those of each file, after the number of its commit. The table may not have those of later commits yet.
    Raises UsageError if the catalogue cannot be used.
    """
    table = local_table(root)
    if table is None:
        metadata = root / Table.MESSAGES / METADATA
        if not metadata.is_dir():
            return
        table = configured_table(LocalTarget(str(root)))
        if table is None:
            raise ExportError(
                "an Iceberg table refers to the files, but its catalogue is neither in the export nor in pyiceberg's "
                "configuration, so whether another program has changed them is unknown; configure the catalogue "
                f"`mqtool`, or remove this directory if the table was dropped; else {ELSEWHERE}",
                metadata,
            )
    if min(table.rows, table.files, table.deletes) < 0:
        raise ExportError(
            f"the Iceberg table does not state its totals, so which rows it has is unknown; {ELSEWHERE}",
            root / Table.MESSAGES,
        )
    published = [count for sequence, count in rows if sequence <= table.sequence and count]
    if (table.rows, table.files, table.deletes, table.changes) != (sum(published), len(published), 0, frozenset()):
        actual = f"{table.rows} rows in {table.files} files, and {table.deletes} files of deleted rows"
        changes = f" after {', '.join(sorted(table.changes))}" if table.changes else ""
        raise ExportError(
            f"expected {sum(published)} rows in {len(published)} files in the Iceberg table, found {actual}{changes}: "
            f"{CHANGED}; {ELSEWHERE}",
            root / Table.MESSAGES,
        )
