"""A pseudo-terminal for the program under test: what a person at a terminal would get on it."""

import errno
import os
import pty
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run_on_terminal(arguments: Sequence[str], **environment: str) -> tuple[int, str]:
    """Runs mqtool with stdout and stderr on one terminal.

    Returns:
        Exit code, and everything that was written, control sequences included.
    """
    master, slave = pty.openpty()
    inherited = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "TERM"}}
    process = subprocess.Popen(
        [sys.executable, "-m", "mqtool", *arguments],
        cwd=ROOT,
        env={**inherited, "TERM": "xterm", "COLUMNS": "200", **environment},
        stdin=subprocess.DEVNULL,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    written = b""
    try:
        while piece := os.read(master, 1 << 16):
            written += piece
    except OSError as error:  # Linux reports the end of the other side as EIO
        if error.errno != errno.EIO:
            raise
    finally:
        os.close(master)
    return process.wait(timeout=60), written.decode().replace("\r\n", "\n")
