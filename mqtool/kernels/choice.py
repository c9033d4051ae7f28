"""Chooses between the kernels and the array operations that they replace."""

import importlib.util
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

from msgspec import Struct

LARGE = 8 << 20
"""Bytes of log from which the kernels are used, if they are compiled."""

COMPILE = 512 << 20
"""Bytes of log below which compiling the kernels takes longer than they save."""

_V3 = {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"}
"""Flags of the processors that LLVM calls x86-64-v3."""

_LOG = logging.getLogger(__name__)


class Kernels(Struct, frozen=True):
    """The compiled functions; each is documented in its module.

    Attributes:
        scan: of `frame_scan`.
        dispatch: of `trailers`.
        plain_records: of `plain_records`.
        field_records: of `field_records`.
        plain_units: of `units`.
        plain_entries, compare_slots: of `entries`.
        encode: of `records`.
        find_bytes: of `objects`.
        plain_put, plain_batch: of `puts`; they return builtin functions, or None where the interpreter has none.
        plain_get: of `gets`; returns a builtin function, or None where the interpreter has none.
        plain_query: of `queries`; as `plain_get`.
        join_records, copy_records: of `gets`; builtin functions, or None.
        group: of `groups`.
        json_lines: of `json_lines`.
    """

    scan: Callable[..., Any]
    dispatch: Callable[..., Any]
    plain_records: Callable[..., Any]
    field_records: Callable[..., Any]
    plain_units: Callable[..., Any]
    plain_entries: Callable[..., Any]
    compare_slots: Callable[..., Any]
    encode: Callable[..., Any]
    find_bytes: Callable[..., Any]
    plain_put: Callable[..., Any]
    plain_batch: Callable[..., Any]
    plain_get: Callable[..., Any]
    plain_query: Callable[..., Any]
    join_records: Callable[..., Any] | None
    copy_records: Callable[..., Any] | None
    group: Callable[..., Any]
    json_lines: Callable[..., Any]


_loaded: list[Kernels] = []
_missing: list[bool] = []
"""Not empty after an attempt to load that failed: a walk of a log tries once."""


def kernels() -> Kernels | None:
    """Returns the kernels if they are in use."""
    return next(iter(_loaded), None)  # another thread may just end its use of them


def load(*, may_compile: bool = True) -> Kernels | None:
    """Returns the kernels; None where they are not compiled and cannot be, or isal (for CRCs) is not installed.

    Args:
        may_compile: whether to compile them if numba is installed, which takes about 25 s once.
    """
    cpu = _cpu()
    if cpu is None:
        return None
    name = file_name(cpu)
    for attempt in (False, may_compile):
        if attempt and not _compile(cpu):
            return None
        for directory in _directories():
            with suppress(OSError, ValueError):
                return _kernels_in(directory / name)
    return None


def _kernels_in(path: Path) -> Kernels:
    from mqtool.kernels import machine_code  # noqa: PLC0415 - small commands need no ctypes

    return Kernels(**machine_code.functions_of(path))


def _cpu() -> str | None:
    """Returns LLVM's name of the level of this processor; None where machine code is not for it."""
    if sys.platform != "linux" or os.uname().machine != "x86_64" or sys.maxsize < 1 << 32:
        return None
    try:
        lines = Path("/proc/cpuinfo").read_text("ascii", "replace").splitlines()
    except OSError:
        return "x86-64"
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), [])
    return "x86-64-v3" if set(flags) >= _V3 else "x86-64"


def file_name(cpu: str) -> str:
    """Returns the name of the file with the kernels for a level of processors.

    It contains a hash of the sources that are compiled, and of the layouts they take constants from.
    """
    package = Path(__file__).parent
    digest = blake2b(digest_size=8)
    for path in sorted([*package.glob("*.py"), *(package.parent / "formats").glob("*.py")]):
        digest.update(path.read_bytes())
    return f"{cpu}-{digest.hexdigest()}.code"


def _directories() -> list[Path]:
    """Returns where compiled kernels may be: in the package, as in wheels, then in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return [Path(__file__).parent / "compiled", Path(cache).expanduser() / "mqtool"]


def _compile(cpu: str) -> bool:
    """Compiles the kernels in a process of its own, into the first directory that can be written to."""
    if any(importlib.util.find_spec(package) is None for package in ("numba", "isal")):
        return False
    import subprocess  # noqa: PLC0415 - small commands need none

    for directory in _directories():
        with suppress(OSError):
            directory.mkdir(parents=True, exist_ok=True)
            if os.access(directory, os.W_OK):
                _LOG.warning(
                    "mqtool: compiling loops for large logs, once on this machine; this takes about half a minute"
                )
                command = [sys.executable, "-m", "mqtool.kernels.build", str(directory), cpu]
                return subprocess.run(command, check=False, capture_output=True).returncode == 0
    return False


def start(size: int = COMPILE) -> None:
    """Uses the kernels from now on, in this process and its forks, if they are available.

    Args:
        size: bytes of log that are read or written; from `COMPILE` on the kernels are compiled if they are not.
    """
    may_compile = size >= COMPILE
    if _loaded or (_missing and not may_compile):
        return
    compiled = load(may_compile=may_compile)
    if compiled is not None:
        _loaded.append(compiled)
    else:
        _missing.append(True)


@contextmanager
def use(size: int) -> Iterator[None]:
    """Uses the kernels from now on, in this process and its forks, if at least `LARGE` bytes of log will be read."""
    compiled = load(may_compile=size >= COMPILE) if size >= LARGE and not _loaded else None
    if compiled is None:
        yield
        return
    _loaded.append(compiled)
    try:
        yield
    finally:
        _loaded.clear()
