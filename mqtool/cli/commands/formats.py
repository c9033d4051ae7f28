"""`mqtool formats`: lists the supported kinds of stores and files, and what can be done with each."""

from collections.abc import Iterator
from typing import Any

import typer

from mqtool.choices import FileKind
from mqtool.cli.commands import COMMANDS as ALL
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format
from mqtool.cli.options import DebugOption, FormatOption
from mqtool.cli.output import Output
from mqtool.cli.schema import TABLE, Column, OutputSchema, prints
from mqtool.siblings.registry import COMMANDS, KINDS

HELP = """
mqtool formats

List the supported kinds of stores and files, the commands that accept each, what else the library can do with them,
and the page that describes them.

impact: read-only
"""

FORMATS = OutputSchema(
    "formats",
    1,
    "a kind of store or file",
    (
        Column("name", "string", "stable", show=TABLE),
        Column("summary", "string", "what it is", show=TABLE),
        Column("commands", "array", "commands that take it", show=TABLE),
        Column("library", "array", "what else the functions of its package do", show=TABLE),
        Column("page", "string", "below docs/"),
    ),
)

_PAGES = {
    FileKind.INDEX_HEADER: "index-file",
    FileKind.TIMER_WHEEL: "timer",
    FileKind.TIMER_LOG: "timer",
    FileKind.TIMER_CHECKPOINT: "timer",
    FileKind.CONFIG: "config-files",
    FileKind.EPOCH_FILE: "epoch",
    FileKind.MARKER: "epoch",
    FileKind.DLEDGER_ENTRY: "dledger",
    FileKind.DLEDGER_INDEX: "dledger",
}

_PARTS = (
    (
        "dledger",
        "a store of RocketMQ whose log, or its newer part, is kept by DLedger",
        ("info", "dump", "get", "find", "verify", "explain-start", "rebuild", "export", "convert"),
        "dledger",
    ),
    (
        "rocksdb-queues",
        "queues, topics and groups of a store in RocksDB (extra rocksdb)",
        ("info", "get", "find", "verify", "convert"),
        "rocksdb-queue",
    ),
    ("timer", "timer wheel, timer log and timer checkpoint of a store", ("dump", "verify", "rebuild"), "timer"),
    ("compaction", "logs and queues of a store's compacted topics", ("dump", "verify"), "batch-consume-queue"),
    ("controller", "epoch files and broker identity of a store in controller mode", ("dump", "verify"), "epoch"),
)
"""Stores and parts of stores for which not every command of a RocketMQ store is: name, summary, commands, page."""


@prints(FORMATS)
def formats(ctx: typer.Context, *, output_format: FormatOption = Format.TABLE, _debug: DebugOption = False) -> ExitCode:
    """Prints the list."""
    output = Output(ctx.obj, FORMATS, output_format)
    output.rows(_rows())
    return output.finish()


def _rows() -> Iterator[dict[str, Any]]:
    taken = [name for name in ALL if name != "formats"]
    yield {
        "name": "rocketmq",
        "summary": "a store of Apache RocketMQ 4.9 or 5.x",
        "commands": taken,
        "library": [],
        "page": "formats/README.md",
    }
    for name, summary, taking, page in _PARTS:
        yield {"name": name, "summary": summary, "commands": list(taking), "library": [], "page": f"formats/{page}.md"}
    for kind in KINDS:
        commands = [verb for verb in kind.verbs if verb in COMMANDS]
        rest = [verb for verb in kind.verbs if verb not in COMMANDS]
        yield {
            "name": kind.name,
            "summary": kind.summary,
            "commands": commands,
            "library": rest,
            "page": f"formats/{kind.page}",
        }
    for file in FileKind:
        commands = ["dump", "get", "find"] if file is FileKind.COMMIT_LOG else ["dump"]
        yield {
            "name": file.value,
            "summary": f"a single file of kind {file.value}",
            "commands": commands,
            "library": [],
            "page": f"formats/{_PAGES.get(file, file.value)}.md",
        }
