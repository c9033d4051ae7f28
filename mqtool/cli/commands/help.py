"""`mqtool help`: prints the documentation."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mqtool import guide
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import TABLE_FORMATS, Format, note
from mqtool.cli.options import DebugOption, FormatOption
from mqtool.cli.output import Output
from mqtool.cli.rows.reference_rows import CHECKS, FORMATS, check_rows, format_rows
from mqtool.cli.schema import DATA, OutputSchema, prints, text
from mqtool.errors import UsageError

if TYPE_CHECKING:
    from mqtool.verify.catalogue import Check

HELP = """
mqtool help recovery

Print a page of the documentation, which is installed with mqtool; no network is used. Without TOPIC, list all topics.
Words that are not a topic are searched for: `mqtool help disk full` lists the pages that contain both; if it is one, it
is printed. The options of a command are printed by `mqtool COMMAND --help`.

`help CODE` explains a code of verify: what it means, how the broker reacts, and what to do. `help checks log-` does so
for all codes with a prefix, `help checks` for all. `help formats` lists the kinds of stores and files, and the commands
that accept each.

impact: read-only
"""

_HITS = 12
"""Pages that a search lists at most."""
_UPRIGHT = 3
"""Codes that are explained line by line rather than in a table."""

PAGES = OutputSchema(
    "help",
    1,
    "a page of the documentation",
    (
        text("topic", "name of the page, for `mqtool help`"),
        text("title", "its heading"),
        text("text", "the page, Markdown; empty in a list of topics", show=DATA),
    ),
)


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
    _debug: DebugOption = False,
) -> ExitCode:
    """Prints one page, codes, kinds of stores, or a list of pages; ends with 1 if there is none."""
    words, as_text = tuple(topic or ()), output_format in TABLE_FORMATS
    checks = _checks(words, as_text=as_text)
    if checks is not None:
        return _rows(ctx, CHECKS, output_format, check_rows(checks), upright=len(checks) <= _UPRIGHT)
    pages = guide.pages()
    chosen = guide.pages_named(pages, "-".join(words)) if words else pages
    if words and not chosen:
        chosen = guide.search(pages, words)[:_HITS]
    is_single = len(chosen) == 1
    if is_single and as_text:
        _show(chosen[0].text)
    if words == ("formats",):
        return _rows(ctx, FORMATS, output_format, format_rows())
    if is_single and as_text:
        return ExitCode.OK
    if not chosen:
        note(f"no page contains {' and '.join(map(repr, words))}; `mqtool help` lists all topics")
    rows = ({"topic": page.topic, "title": page.title, "text": page.text if is_single else ""} for page in chosen)
    return _rows(ctx, PAGES, output_format, rows, ExitCode.OK if chosen else ExitCode.NO)


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

    Raises:
        UsageError: no code begins like this.
    """
    from mqtool.verify.catalogue import CATALOGUE

    if words and all(word in CATALOGUE for word in words):
        return [CATALOGUE[word] for word in words]
    if words[:1] != ("checks",) or (as_text and len(words) == 1):
        return None
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
