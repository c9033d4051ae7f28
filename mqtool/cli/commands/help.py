"""`mqtool help`: prints the documentation."""

import os
import sys
from typing import Annotated

import typer

from mqtool.cli import guide
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import TABLE_FORMATS, Format, note
from mqtool.cli.options import DebugOption, FormatOption
from mqtool.cli.output import Output
from mqtool.cli.schema import DATA, OutputSchema, prints, text
from mqtool.errors import UnavailableError

HELP = """
mqtool help recovery

Print a page of the documentation, which is installed with mqtool; no network is used. Without TOPIC, list all topics.
Words that are not a topic are searched for: `mqtool help disk full` lists the pages that contain both. The options of a
command are printed by `mqtool COMMAND --help`.

impact: read-only
"""

_HITS = 12
"""Pages that a search lists at most."""

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


@prints(PAGES)
def help(  # noqa: A001 - the name of the command
    ctx: typer.Context,
    topic: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TOPIC]...", help="Name of a page, or words to search for.", show_default=False),
    ] = None,
    *,
    output_format: FormatOption = Format.TABLE,
    _debug: DebugOption = False,
) -> ExitCode:
    """Prints one page, or a list of pages; ends with 1 if there is none."""
    pages = guide.pages()
    if not pages:
        raise UnavailableError("the documentation is not installed; install the wheel of mqtool again")
    words = tuple(topic or ())
    chosen = guide.pages_named(pages, "-".join(words)) if words else pages
    is_single = len(chosen) == 1
    if words and not chosen:
        chosen = guide.search(pages, words)[:_HITS]
    if is_single and output_format in TABLE_FORMATS:
        _show(chosen[0].text)
        return ExitCode.OK
    if not chosen:
        note(f"no page contains {' and '.join(map(repr, words))}; `mqtool help` lists all topics")
    output = Output(ctx.obj, PAGES, output_format)
    output.rows({"topic": page.topic, "title": page.title, "text": page.text if is_single else ""} for page in chosen)
    return output.finish(ExitCode.OK if chosen else ExitCode.NO)


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
