"""`mqtool convert`: writes a store in another layout with the same messages."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mqtool.cli import options
from mqtool.cli.changes import refuse_half_changed
from mqtool.cli.damage import DAMAGED_RANGES, damaged_ranges, note_damaged_ranges
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format, note
from mqtool.cli.options import ProgressMode
from mqtool.cli.output import Output
from mqtool.cli.progress import share_of, show_progress
from mqtool.cli.schema import TABLE, WIDE, Column, OutputSchema, prints, row_of, text

if TYPE_CHECKING:
    from mqtool.convert.staging import ConversionResult
    from mqtool.store.store import Store


HELP = """
mqtool convert dledger /data/store -o /data/plain

Write a store of another layout with the same messages in the same queues at the same queue offsets. dledger: from a
DLedger log to an ordinary one; queues and index are rebuilt, physical offsets and offset message ids change.
rocksdb-queues: from queues, topics, groups and offsets in RocksDB to files. file-queues: from files to RocksDB. The
result is verified. Damaged ranges are left out and reported; the exit code is then 1. What is not converted is listed
as left_behind. The new store appears only when it is complete and on disk. Refused while a broker has the source open.

impact: writes what -o names, next to it while it is incomplete; the source is only read
"""


_FIGURES = (
    Column("records", "int64", "of the new log; null where the log was copied", show=TABLE, nullable=True),
    Column("units", "int64", "of all queues of the new store", show=TABLE),
    Column("start", "int64", "physical offset of the new log's first byte", show=WIDE),
    Column("end", "int64", "physical offset after the new log's last record", show=WIDE),
    Column("unresolved", "int64", "references to records that were no longer there, kept as they are", show=WIDE),
)

CONVERT = OutputSchema(
    "convert",
    "result of a conversion",
    (
        Column("what", "string", "the conversion", show=TABLE),
        Column("source", "string", "root of the store that was read", show=TABLE),
        Column("target", "string", "root of the new store", show=TABLE),
        Column("complete", "boolean", "the source was complete, and all of it is in the new store", show=TABLE),
        text("status", "state of the new store according to `verify`: clean, dirty, corrupt, unknown"),
        *_FIGURES,
        Column("left_behind", "array", "names in the source's root that are not in the new store", show=TABLE),
        Column("differences", "array", "units for which queues and log disagree, in words", show=TABLE),
        DAMAGED_RANGES,
    ),
    single=True,
)


class Conversion(StrEnum):
    """Values of WHAT."""

    DLEDGER = "dledger"
    ROCKSDB_QUEUES = "rocksdb-queues"
    FILE_QUEUES = "file-queues"


WhatArgument = Annotated[
    Conversion,
    typer.Argument(metavar="WHAT", help="Layout of STORE: dledger, rocksdb-queues or file-queues.", show_default=False),
]


@prints(CONVERT)
def convert(
    ctx: typer.Context,
    what: WhatArgument,
    source: options.StoreArgument,
    *,
    target: Annotated[Path, options.output_option("New or empty directory for the new store.")],
    output_format: options.FormatOption = Format.TABLE,
    config: options.ConfigOption = None,
    progress: options.ProgressOption = ProgressMode.AUTO,
) -> ExitCode:
    """Converts, verifies the new store, and reports."""
    from mqtool.store.store import open_store
    from mqtool.verify.findings import State
    from mqtool.verify.store import verify

    refuse_half_changed(source)
    with options.stated_release(source, config, has_option=False), open_store(source, config) as store:
        notes = store.layout.place_of_copied_log(target) if what is Conversion.DLEDGER else []
        result = _convert(what, store, target, progress)
    with open_store(target) as converted:
        state = verify(converted).state
    damage = damaged_ranges(result.damage.items)
    note_damaged_ranges(damage)
    for words in notes:
        note(words)
    document = {
        "what": what.value,
        "source": str(source),
        "target": str(target),
        "complete": result.is_complete,
        **row_of(_FIGURES, result),
        "left_behind": result.left_behind,
        "differences": result.differences.items,
        "damage": damage,
        "status": state.value,
    }
    good = result.is_complete and state is not State.CORRUPT
    return Output(ctx.obj, CONVERT, output_format).document(document, ExitCode.OK if good else ExitCode.NO)


def _convert(what: Conversion, store: Store, target: Path, progress: ProgressMode) -> ConversionResult:
    """Converts; queues without progress, because most of the time is spent copying the log."""
    from mqtool.convert import dledger, queues

    if what is not Conversion.DLEDGER:
        move = queues.into_files if what is Conversion.ROCKSDB_QUEUES else queues.into_rocksdb
        return move(store, target)
    size = store.commit_log.bytes_in_use
    with show_progress(progress, "convert", 0, size) as bar:
        return dledger.convert(store, target, share_of(bar, size))
