"""Chooses between the kernels and the array operations that they replace."""

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LARGE = 512 << 20
"""Bytes of log below which loading the kernels takes longer than they save."""


@dataclass(frozen=True, slots=True)
class Kernels:
    """The compiled functions; each is documented in its module.

    Attributes:
        scan: of `frame_scan`.
        dispatch: of `trailers`.
        add_units, add_entries, follow, chain: of `sums`.
        plain_units: of `units`.
        encode: of `records`.
        find_bytes: of `objects`.
        number, pack_units: of `queues`.
        put_entries: of `index`.
    """

    scan: Callable[..., Any]
    dispatch: Callable[..., Any]
    add_units: Callable[..., Any]
    add_entries: Callable[..., Any]
    follow: Callable[..., Any]
    chain: Callable[..., Any]
    plain_units: Callable[..., Any]
    encode: Callable[..., Any]
    find_bytes: Callable[..., Any]
    number: Callable[..., Any]
    pack_units: Callable[..., Any]
    put_entries: Callable[..., Any]


_loaded: list[Kernels] = []


def kernels() -> Kernels | None:
    """Returns the kernels if they are in use."""
    return next(iter(_loaded), None)  # another thread may just end its use of them


def load() -> Kernels | None:
    """Returns the kernels if numba and isal (for CRCs) are installed, otherwise None."""
    if any(importlib.util.find_spec(name) is None for name in ("numba", "isal")):
        return None
    _forget_stale(Path(__file__).parent)
    try:
        from mqtool.kernels import body_crc  # noqa: PLC0415 - half a second

        if not body_crc.HAS_CRC32:
            return None
        from mqtool.kernels import frame_scan, index, objects, queues, records, sums, trailers, units  # noqa: PLC0415
    except (ImportError, RuntimeError):  # numba does not support this numpy, or has no writable cache directory
        return None
    return Kernels(
        frame_scan.scan,
        trailers.dispatch,
        sums.add_units,
        sums.add_entries,
        sums.follow,
        sums.chain,
        units.plain_units,
        records.encode,
        objects.find_bytes,
        queues.number,
        queues.pack_units,
        index.put_entries,
    )


def _forget_stale(package: Path) -> None:
    """Deletes cached code that is older than any source: numba compares only a kernel's own file."""
    sources = [*package.glob("*.py"), *(package.parent / "formats").glob("*.py")]
    newest = max((path.stat().st_mtime for path in sources), default=0.0)  # none where the package is a zip
    for compiled in (package / "__pycache__").glob("*.nbi"):
        with suppress(OSError):
            if compiled.stat().st_mtime < newest:
                compiled.unlink()


def start() -> None:
    """Uses the kernels from now on, in this process and its forks, if they are available."""
    found = None if _loaded else load()
    if found is not None:
        _loaded.append(found)


@contextmanager
def use(size: int) -> Iterator[None]:
    """Uses the kernels from now on, in this process and its forks, if at least `LARGE` bytes of log will be read."""
    found = load() if size >= LARGE and not _loaded else None
    if found is None:
        yield
        return
    _loaded.append(found)
    try:
        yield
    finally:
        _loaded.clear()
