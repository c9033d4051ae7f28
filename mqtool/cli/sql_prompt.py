"""The prompt of `mqtool sql`: history, and completion of tables, columns and words of SQL."""

from __future__ import annotations

import contextlib
import os
import readline
from collections.abc import Iterable, Iterator
from pathlib import Path

_WORDS = """
SELECT FROM WHERE GROUP ORDER BY LIMIT AND OR NOT IN LIKE BETWEEN COUNT SUM DISTINCT JOIN HAVING DESCRIBE
"""
HELP = """
.tables          list the tables
.schema TABLE    list the columns of a table
.mode MODE       print results as table, line (one value a line), wide, csv, json or jsonl
.exit            leave, as exit and Ctrl-D do

Anything else is SQL, up to a semicolon. Ctrl-C drops what was begun; the tabulator key completes names.
"""
_MAX_LINES = 1000


def statements(names: Iterable[str]) -> Iterator[str]:
    """Yields statements as they are typed, each up to its semicolon, until the end of the input.

    Args:
        names: of tables and columns, to complete.
    """
    candidates = [*sorted(names), *_WORDS.split()]

    def complete(start: str, number: int) -> str | None:
        fitting = [word for word in candidates if word.lower().startswith(start.lower())]
        return fitting[number] if number < len(fitting) else None

    readline.set_completer(complete)
    readline.set_completer_delims(" \t\n,()=<>;.")
    readline.parse_and_bind("tab: complete")
    history = _history()
    with contextlib.suppress(OSError):
        readline.read_history_file(history)
    readline.set_history_length(_MAX_LINES)
    try:
        yield from _typed()
    finally:
        with contextlib.suppress(OSError):
            history.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(history)


def _history() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "mqtool" / "sql_history"


def _typed() -> Iterator[str]:
    lines: list[str] = []
    while True:
        try:
            lines.append(input("  ...> " if lines else "mqtool> "))
        except EOFError:
            return
        except KeyboardInterrupt:
            lines = []
            continue
        statement = "\n".join(lines).strip()
        if statement.rstrip(";").lower() in ("exit", "quit", ".exit", ".quit"):
            return
        if not statement or statement.endswith(";") or statement.startswith("."):
            lines = []
            if statement.strip(";"):
                yield statement
