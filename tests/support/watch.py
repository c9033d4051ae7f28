"""Watches where tests of this process make, rename and remove files: below directories that are meant for it, and nowhere else.

The interpreter reports each change before it happens. Processes that a test starts are not watched.
"""

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_CHANGES = {
    "os.mkdir": 1,
    "os.rmdir": 1,
    "os.remove": 1,
    "os.rename": 2,
    "os.link": 2,
    "os.symlink": 2,
    "os.truncate": 1,
}
"""Events, and how many of their first arguments are paths that change."""
_HARMLESS = ("open", "os.mkdir")
"""Events that change no directory that is there: a file without a name is made in it, and it cannot be made again."""
_GIVEN = re.compile(
    r"""(tmp|mqtool|pymp|hsperf|spark-|blockmgr-)[^/]*(/|$)
      | pytest-of-[^/]+(/pytest-[^/]+(/popen-gw\d+)?)?(/\.lock)?$
      | pytest-of-[^/]+/pytest-\d+/(popen-gw\d+/)?(?!popen-gw)([^/]*(\d|current)|garbage-[^/]*)(/|$)
      | pytest-of-[^/]+/garbage-""",
    re.VERBOSE,
)
"""Below the directory for temporary files: what pytest gives to a test, and what `tempfile` makes."""


class Watch:
    """The changes of this process outside of the directories meant for them.

    Attributes:
        strange: what was changed, and by which event.
    """

    def __init__(self) -> None:
        self.strange: list[str] = []
        self._temporary = os.path.realpath(tempfile.gettempdir())
        roots = (ROOT, Path.home() / ".cache", Path.home() / ".m2", Path(sys.prefix), "/dev", "/proc")
        self._roots = tuple(f"{root}/" for root in roots if not self._temporary.startswith(f"{root}/"))
        self._around = tuple(f"{root}/" for root in roots if self._temporary.startswith(f"{root}/"))
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            if arguments[2] & _WRITES:
                self._look(event, arguments[0])
        elif event in _CHANGES:
            for path in arguments[: _CHANGES[event]] if event != "os.symlink" else arguments[1:2]:
                self._look(event, path)

    def _look(self, event: str, path: Any) -> None:
        if not isinstance(path, str | bytes | os.PathLike):
            return  # a descriptor: it was looked at when it was opened
        name = os.path.normpath(os.path.join(os.getcwd(), os.fsdecode(path)))  # noqa: PTH109, PTH118 - no Path per event
        below = name.removeprefix(f"{self._temporary}/")
        elsewhere = below == name
        is_given = name.startswith(self._roots) or (name.startswith(self._around) if elsewhere else _GIVEN.match(below))
        if not is_given and not (event in _HARMLESS and os.path.isdir(name)):  # noqa: PTH112 - no Path per event
            self.strange.append(f"{event} {name}")
