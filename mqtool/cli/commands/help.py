"""`mqtool help`: prints the documentation."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec.structs import replace

from mqtool import guide
from mqtool.choices import FileKind
from mqtool.cli import reference
from mqtool.cli.commands import COMMANDS as ALL
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import TABLE_FORMATS, Format, note
from mqtool.cli.options import FormatOption
from mqtool.cli.output import Output
from mqtool.cli.schema import DATA, TABLE, Column, OutputSchema, prints, row_of, text
from mqtool.errors import UsageError
from mqtool.search import Hit, search
from mqtool.siblings.registry import COMMANDS, KINDS

if TYPE_CHECKING:
    from mqtool.verify.catalogue import Check

CHECKS = OutputSchema(
    "checks",
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
    "a kind of store or file",
    (
        Column("name", "string", "stable", show=TABLE),
        Column("summary", "string", "what it is", show=TABLE),
        Column("commands", "array", "commands that take it", show=TABLE),
        Column("library", "array", "what else its Python package can do", show=TABLE),
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

HELP = """
mqtool help recovery

Print a page of the documentation, which is installed with mqtool; no network is used. Without TOPIC, list all topics.

What is not a topic is searched for: `mqtool help broker does not start` lists the pages, commands and codes that fit,
the best first, with the words that fit. So does a line of a log in quotes, an error code, or a question in Chinese.
The options of a command are printed by `mqtool COMMAND --help`.

`help CODE` explains a code of verify: what it means, how the broker reacts, and what to do. `help checks log-` does so
for all codes with a prefix, `help checks` for all. `help formats` lists the kinds of stores and files, and the commands
that accept each.

impact: read-only
"""

_HITS = 12
"""Rows that a search lists at most."""

_CODE = re.compile(r"^### `([\w-]+)`\n\n(.+?)\s*(?=^##|\Z)", re.MULTILINE | re.DOTALL)
"""An entry of checks.md: the code and its text."""

_UPRIGHT = 3
"""Codes that are explained line by line rather than in a table."""

PAGES = OutputSchema(
    "help",
    "a page of the documentation, a command or a code",
    (
        text("topic", "name of the page or code, for `mqtool help`; or `mqtool COMMAND`"),
        text("title", "its heading, or what the command does"),
        text("why", "the words that a search found in it; empty in a list of all topics", label="found"),
        text("text", "the page, Markdown; empty in a list of topics", show=DATA),
    ),
)


def check_rows(checks: Iterable[Check]) -> Iterator[dict[str, Any]]:
    """Yields the rows of codes."""
    for check in checks:
        step = re.sub(r"\{(\w+)\}", lambda name: name[1].upper(), check.next_step)
        yield row_of(CHECKS.columns, check, check=check.area, next_step=step, runbooks=" ".join(check.runbooks))


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


@prints(PAGES, CHECKS, FORMATS)
def help(  # noqa: A001 - the name of the command
    ctx: typer.Context,
    topic: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TOPIC]...", help="Name of a page or code, or words to search for.", show_default=False
        ),
    ] = None,
    *,
    output_format: FormatOption = Format.TABLE,
) -> ExitCode:
    """Prints one page, codes, kinds of stores, or a list of what a search finds; ends with 1 if there is none."""
    words, as_text = tuple(topic or ()), output_format in TABLE_FORMATS
    checks = _checks(words, as_text=as_text)
    if checks is not None:
        return _rows(ctx, CHECKS, output_format, check_rows(checks), upright=len(checks) <= _UPRIGHT)
    pages = guide.pages()
    chosen = [Hit(page) for page in (guide.pages_named(pages, "-".join(words)) if words else pages)]
    is_single = len(chosen) == 1
    if is_single:
        chosen = [Hit(_complete(chosen[0].page))]
    if is_single and as_text:
        _show(chosen[0].page.text)
    if words == ("formats",):
        return _rows(ctx, FORMATS, output_format, format_rows())
    if is_single and as_text:
        return ExitCode.OK
    if words and not chosen:
        chosen = [*islice(_found(pages, " ".join(words)), _HITS)]
    if not chosen:
        note(f"nothing is about {' '.join(words)!r}; `mqtool help` lists all topics")
    rows = (
        {"topic": hit.page.topic, "title": hit.page.title, "why": hit.why, "text": hit.page.text if is_single else ""}
        for hit in chosen
    )
    return _rows(ctx, PAGES, output_format, rows, ExitCode.OK if chosen else ExitCode.NO)


def _found(pages: Iterable[guide.Page], question: str) -> Iterator[Hit]:
    """Yields what fits a question, the pages first that quote it if it is a line of a log."""
    quoting = [Hit(page, words) for page, words in guide.logged(pages, question)]
    commands = (guide.Page(f"mqtool {name}", row.summary, "") for name, row in ALL.items())
    codes = (guide.Page(f"checks {code}", text.split(". ")[0], text) for code, text in _codes().items())
    topics = {hit.page.topic for hit in quoting}
    hits = search((*(page for page in pages if page.topic != "checks"), *commands, *codes), question)
    yield from quoting
    yield from (hit for hit in hits if hit.page.topic not in topics)


@cache
def _codes() -> dict[str, str]:
    """Returns the texts of checks.md by code, without its check of the form, which needs all of verify."""
    return dict(_CODE.findall(guide.text_of("checks.md")))


def _complete(page: guide.Page) -> guide.Page:
    return replace(page, text=reference.complete(page.text))


def _rows(
    ctx: typer.Context,
    schema: OutputSchema,
    output_format: Format,
    rows: Iterable[dict[str, Any]],
    code: ExitCode = ExitCode.OK,
    *,
    upright: bool = False,
) -> ExitCode:
    output = Output(ctx.obj, schema, output_format, upright=upright)
    output.rows(rows)
    return output.finish(code)


def _checks(words: tuple[str, ...], *, as_text: bool) -> list[Check] | None:
    """Returns the codes that words name, None if they name a page: that of all codes too, where a text is asked for.

    Raises UsageError if no code begins like this.
    """
    is_code = bool(words) and _codes().keys() >= set(words)
    if not is_code and (words[:1] != ("checks",) or (as_text and len(words) == 1)):
        return None
    from mqtool.verify.catalogue import CATALOGUE  # with all of verify, which other pages need not wait for

    if is_code:
        return [CATALOGUE[word] for word in words]
    prefixes = words[1:] or ("",)
    unknown = [prefix for prefix in prefixes if not any(known.startswith(prefix) for known in CATALOGUE)]
    if unknown:
        raise UsageError(f"no code starts with {unknown[0]!r}; `mqtool help checks` lists all codes")
    return [check for known, check in CATALOGUE.items() if known.startswith(prefixes)]


def _show(page: str) -> None:
    """Prints Markdown as it is; on a terminal formatted, in the user's pager."""
    if not sys.stdout.isatty():
        sys.stdout.write(page)
        return
    from pydoc import pager

    from rich.console import Console
    from rich.markdown import Markdown

    console = Console(force_terminal=True)
    with console.capture() as capture:
        console.print(Markdown(page, hyperlinks=False))
    os.environ.setdefault("LESS", "-FR")  # less shows colours, and ends at once if all fits on the screen
    pager(capture.get())
