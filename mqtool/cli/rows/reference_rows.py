"""Rows of `mqtool help`: the codes of verify, and the supported kinds of stores and files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from mqtool.choices import FileKind
from mqtool.cli.commands import COMMANDS as ALL
from mqtool.cli.schema import TABLE, Column, OutputSchema, text
from mqtool.siblings.registry import COMMANDS, KINDS

if TYPE_CHECKING:
    from mqtool.verify.catalogue import Check

CHECKS = OutputSchema(
    "checks",
    1,
    "a code that verify can report",
    (
        text("code", "stable name"),
        text("check", "which check reports it"),
        text("severity", "error, unknown, warning or note, unless `meaning` states when it differs"),
        text("meaning", "what is broken, and how the broker reacts"),
        text("remedy", "what to do", show="wide"),
        text("next_step", "the command to type", show="wide"),
        text("runbooks", "runbooks that cover it, the first one to try; empty if there is none"),
        text("no_runbook", "where there is no runbook, why not", show="wide"),
    ),
)

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


def check_rows(checks: Iterable[Check]) -> Iterator[dict[str, Any]]:
    """Yields the rows of codes."""
    for check in checks:
        yield {
            "code": check.code,
            "check": check.area.value,
            "severity": check.severity.value,
            "meaning": check.meaning,
            "remedy": check.remedy,
            "next_step": re.sub(r"\{(\w+)\}", lambda name: name[1].upper(), check.next_step),
            "runbooks": " ".join(check.runbooks),
            "no_runbook": check.no_runbook,
        }


def format_rows() -> Iterator[dict[str, Any]]:
    """Yields the rows of kinds of stores and files."""
    yield {
        "name": "rocketmq",
        "summary": "a store of Apache RocketMQ 4.9 or 5.x",
        "commands": [name for name in ALL if name != "help"],
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
