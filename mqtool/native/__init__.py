"""Hot rules in compiled form: extension modules that Cython makes of the files here, where a C compiler was found.

`logs` has the passes over logs, queues and index files, `lines` the lines of JSON, `engine` puts, gets and queries.
Read `bytes.pxd` first, then `logs.pyx`. Each rule also has one form in Python, which runs where these are missing;
property tests compare the two.
"""

import os
import signal
import sysconfig
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from mqtool.signals import signals_blocked


class Modules(NamedTuple):
    """The extension modules."""

    engine: Any
    lines: Any
    logs: Any


is_enabled = os.environ.get("MQTOOL_NATIVE") != "0"
"""Whether the compiled forms may be used; MQTOOL_NATIVE=0 in the environment says no."""


@cache
def _modules() -> Modules | None:
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return None  # importing them would turn the interpreter's lock on for the complete process
    try:
        with signals_blocked(signal.SIGINT):  # Cython's start of a module drops whatever is raised in it, Ctrl-C too
            return Modules(*(import_module(f"{__name__}.{name}") for name in Modules._fields))
    except ImportError:
        return None


def native() -> Modules | None:
    """Returns the extension modules; None where they were not compiled, or are not to be used."""
    return _modules() if is_enabled else None
