"""A command that is killed at a change of files: `python -m tests.support.dying DIRECTORY STEP COMMAND…`.

A change is a file opened to write, a directory made, a rename or a removal below DIRECTORY. Just before the one of the
number STEP the process sends itself SIGKILL; nothing of the command is replaced, the interpreter tells of each change.
With STEP 0 it lives, and prints the number of changes as the last line of stderr.
"""

import os
import signal
import sys
from typing import Any

from mqtool.cli.app import run

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir"}


def main() -> int:
    """Runs the command."""
    directory, last = sys.argv[1], int(sys.argv[2])
    count = 0

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        if event not in _CHANGES and not (event == "open" and arguments[2] & _WRITES):
            return
        if not isinstance(arguments[0], str | bytes | os.PathLike) or not os.fsdecode(arguments[0]).startswith(
            directory
        ):
            return
        count += 1
        if count == last:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)
    code = run(sys.argv[3:])
    print(count, file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
