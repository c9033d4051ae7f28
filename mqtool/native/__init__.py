"""Hot rules in compiled form: extension modules that Cython makes of the files here, where a C compiler was found.

`logs` has the passes over logs, queues and index files, `lines` the lines of JSON, `engine` puts, gets and queries:
`native.logs` and the others are there while `in_use` returns True. Read `bytes.pxd` first, then `logs.pyx`. Each rule
also has one form in Python, which runs where these are missing; property tests compare the two.
"""

import os
import sys
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from mqtool.signals import interrupt_deferred

if TYPE_CHECKING:
    from mqtool.native import engine as engine
    from mqtool.native import lines as lines
    from mqtool.native import logs as logs

MODULES = ("engine", "lines", "logs")

is_enabled = os.environ.get("MQTOOL_NATIVE") != "0"
"""Whether the compiled forms may be used; MQTOOL_NATIVE=0 in the environment says no."""


@cache
def _are_imported() -> bool:
    if "t" in sys.abiflags:  # a free-threaded interpreter
        return False  # importing them would turn the interpreter's lock on for the complete process
    try:
        with interrupt_deferred():  # Cython's start of a module drops whatever is raised in it
            for name in MODULES:
                import_module(f"{__name__}.{name}")
    except ImportError:
        return False
    return True


def in_use() -> bool:
    """Whether the extension modules are used: they were compiled, and nobody has switched them off."""
    return is_enabled and _are_imported()
