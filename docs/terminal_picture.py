"""Draws docs/pictures/terminal.svg, the picture in the README, from a real run of mqtool.

    python docs/terminal_picture.py           # write
    python docs/terminal_picture.py --check   # compare its text, write nothing; exit code 1 if it differs

The store is that of a broker that was killed (fixtures/crash-5.5.0), with one bit of its log flipped.
"""

import html
import io
import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "pictures" / "terminal.svg"
COMMAND = ("verify", "store")
COLUMNS = 112
FLIPPED = 40_000
"""Position of the byte with the flipped bit: in the body of a message."""

DRAWING = """<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img">
<title>mqtool verify on the store of a killed broker with one flipped bit</title>
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
"""As in rich, without the fonts that it would load from elsewhere."""


def printed() -> str:
    """Returns what the command prints on a terminal, with its colours."""
    with tempfile.TemporaryDirectory() as directory:
        shutil.copytree(ROOT / "fixtures" / "crash-5.5.0" / "store", Path(directory) / "store")
        with (Path(directory) / "store" / "commitlog" / f"{0:020}").open("r+b") as log:
            log.seek(FLIPPED)
            byte = log.read(1)[0]
            log.seek(FLIPPED)
            log.write(bytes([byte ^ 1]))
        return _on_a_terminal([sys.executable, "-m", "mqtool", *COMMAND], directory)


def _on_a_terminal(command: list[str], directory: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    environment |= {"PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "TZ": "UTC"}
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command, cwd=directory, env=environment, stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.DEVNULL
    ):
        os.close(theirs)
        blocks = []
        while block := _read(ours):
            blocks.append(block)
    os.close(ours)
    return b"".join(blocks).decode("utf-8").replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # Linux ends a terminal that nobody writes to any more like this
        return b""


def drawn() -> str:
    """Returns the picture."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.assemble(("$ ", "bold green"), ("mqtool " + " ".join(COMMAND), "bold")))
    console.print(Text.from_ansi(printed()))
    svg = console.export_svg(title="mqtool", code_format=DRAWING, unique_id="mqtool")
    return "\n".join(line.rstrip() for line in svg.splitlines() if line.strip()) + "\n"


def words(svg: str) -> list[str]:
    """Returns the pieces of text in a picture, whatever their places and colours."""
    pieces = re.findall(r"<text [^>]*>([^<]*)</text>", svg)
    return [text for piece in pieces if (text := html.unescape(piece).replace("\xa0", " ").strip())]


def main() -> int:
    """Writes or compares."""
    picture = drawn()
    if "--check" in sys.argv[1:]:
        current = PICTURE.exists() and words(PICTURE.read_text("utf-8")) == words(picture)
        print(f"{PICTURE.relative_to(ROOT)}: {'current' if current else 'out of date; run docs/terminal_picture.py'}")
        return 0 if current else 1
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(picture, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
