"""Runs the examples of the pages below and writes down what they print.

    python docs/examples.py           # write
    python docs/examples.py --check   # say what is out of date, write nothing; exit code 1 if anything is

A block of kind `bash` is run by a shell at the project's root. Blocks of kind `python` are run too, all of a page in
one process. What one prints on stdout is in the block of kind `text` that follows it. Blocks of kind `sh` are not run.
"""

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from docs.stale_files import write_or_check  # noqa: E402 - the checkout comes first

PAGES = ("tour.md", "library.md", "tutorials/broker-in-tests.md")
BLOCK = re.compile(r"^```(bash|python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def filled(text: str) -> str:
    """Returns a page with what its examples print now."""
    names: dict[str, Any] = {"__name__": "__main__"}
    printed = ""

    def run(block: re.Match[str]) -> str:
        nonlocal printed
        kind, body = block.groups()
        if kind != "text":
            printed = _shell(body) if kind == "bash" else _python(body, names)
            return block.group()
        return f"```text\n{printed}```"

    return BLOCK.sub(run, text)


def _shell(body: str) -> str:
    """Returns what commands print."""
    python = f'mqtool() {{ "{sys.executable}" -m mqtool "$@"; }}\n'
    result = subprocess.run(
        ["bash", "-c", python + body],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "TZ": "UTC"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode not in (0, 1) or not result.stdout:
        raise SystemExit(f"docs/examples.py: {body}: {result.stderr}")
    return "".join(f"{text.rstrip()}\n" for text in result.stdout.splitlines())


def _python(body: str, names: dict[str, Any]) -> str:
    printed = io.StringIO()
    with contextlib.chdir(ROOT), contextlib.redirect_stdout(printed):
        exec(compile(body, "example", "exec"), names)  # noqa: S102 - our own pages
    return printed.getvalue()


def main() -> int:
    """Fills or checks the pages; returns the exit code."""
    return write_or_check({path: filled(path.read_text("utf-8")) for path in (ROOT / "docs" / name for name in PAGES)})


if __name__ == "__main__":
    sys.exit(main())
