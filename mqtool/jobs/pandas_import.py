"""Keeps pyarrow from importing pandas in commands, which do not use it."""

import sys
from importlib.abc import MetaPathFinder
from typing import Any


class _Hidden(MetaPathFinder):
    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:  # noqa: ARG002 - an interface
        if fullname == "pandas":
            raise ModuleNotFoundError("commands of mqtool run without pandas", name=fullname)


_FINDER = _Hidden()


def hide() -> None:
    """Makes this process work as if pandas were not installed.

    pyarrow imports pandas for the first array where it is installed: 0.4 s, in which a Ctrl-C is lost.
    """
    sys.meta_path.insert(0, _FINDER)


def show() -> None:
    """Ends `hide`: Spark needs pandas."""
    if _FINDER in sys.meta_path:
        sys.meta_path.remove(_FINDER)
