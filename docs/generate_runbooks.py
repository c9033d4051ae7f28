"""Writes docs/runbooks/: the pages that `mqtool runbook show` prints, and their list.

`python docs/generate_runbooks.py` writes; `--check` names what is out of date and exits with 1.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from docs.stale_files import write_or_check  # noqa: E402 - the checkout comes first
from mqtool.repair.runbooks import RUNBOOKS, page  # noqa: E402


def pages() -> dict[str, str]:
    """Returns every page by its name."""
    rows = "".join(f"| [{book.id}]({book.id}.md) | {book.name} | {book.symptom[0]} |\n" for book in RUNBOOKS.values())
    head = (
        "# Runbooks\n\nKnown problems of a store, as code: `mqtool runbook list`, `mqtool runbook show ID`, "
        "`mqtool runbook run ID STORE`.\n"
        "Nothing is changed without consent (`--yes`, or the answer to a question), and every change can be undone.\n\n"
        "| | Trouble | First symptom |\n|---|---|---|\n"
    )
    return {"README.md": head + rows, **{f"{book.id}.md": page(book) for book in RUNBOOKS.values()}}


def main() -> int:
    """Writes or checks every page; returns the exit code."""
    return write_or_check({ROOT / "docs" / "runbooks" / name: text for name, text in pages().items()})


if __name__ == "__main__":
    sys.exit(main())
