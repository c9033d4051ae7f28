"""Keeps libraries from importing what commands do not use."""

import sys
from typing import Any

_BY_ARROW = ("pyarrow", "mqtool")
"""pyarrow's own code has no frame: its caller seems to import. Spark and clients of object stores need both modules."""

_UNUSED = {"pandas": _BY_ARROW, "dateutil": _BY_ARROW, "typing_extensions": ("msgspec",)}
"""Modules that are not imported, by which packages; they take them for not installed."""


class _Hidden:
    """A finder of modules; the class for them would take 3 ms to import."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:  # noqa: ARG002 - an interface
        if fullname in _UNUSED and _importer().partition(".")[0] in _UNUSED[fullname]:
            raise ModuleNotFoundError("mqtool does without it", name=fullname)


def _importer() -> str:
    """Returns the name of the module that imports another one at this moment."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("importlib"):
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", ""))


def hide() -> None:
    """Makes pyarrow work as if pandas and dateutil were not installed, and msgspec without typing_extensions.

    Where they are, pyarrow imports pandas for the first array (0.4 s) and dateutil for the first scalar, and takes any
    exception for a failed import: a Ctrl-C at that moment would be lost. msgspec needs typing_extensions, which takes
    3 ms to import, only to decode documents.
    """
    sys.meta_path.insert(0, _Hidden())
