"""Renders the page from its content: one file without external resources, with every value escaped."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING

from mqtool import __version__, words
from mqtool.jobs.progress import OnProgress, ignore
from mqtool.pages import templates
from mqtool.report.content import COLUMNS, WIDTH, Content, gather
from mqtool.store import Store
from mqtool.verify import Options, Verification, examine

if TYPE_CHECKING:
    from jinja2 import Environment


def report(
    store: Store,
    options: Options | None = None,
    on_progress: OnProgress = ignore,
    advise: Callable[[Store, Verification], Sequence[str]] | None = None,
) -> tuple[str, Verification]:
    """Checks a store and returns the page as HTML, and the answer of verify that it shows.

    Args:
        options: as for verify; messages over time are always counted, whatever the options state.
        advise: returns the commands to run; without one, or if it returns none, each finding has its own.

    Raises:
        UsageError: the state file is not a verify state file.
    """
    chosen = options or Options()
    verify_options = Options(
        chosen.topics, chosen.jobs, chosen.throttle, chosen.state, chosen.max_seconds, timeline=True
    )
    answer, facts = examine(store, verify_options, on_progress)
    created = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC by mqtool {__version__}"
    steps = () if advise is None else tuple(advise(store, answer))
    return render(gather(store, answer, facts, created, steps)), answer


def render(content: Content) -> str:
    """Returns the page as HTML."""
    return _environment().get_template("report.html").render(page=content, answer=content.answer)


@cache
def _environment() -> "Environment":
    environment = templates("mqtool.report")
    environment.filters.update(runs=words.runs)
    environment.globals.update(columns=COLUMNS, map_width=WIDTH)
    return environment
