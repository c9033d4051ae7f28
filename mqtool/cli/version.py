"""`mqtool --version`: versions of mqtool and of the libraries that it uses."""

import platform
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

from mqtool import __version__

_LIBRARIES = ("numpy", "pyarrow", "orjson", "zstandard", "lz4", "typer")


def lines() -> list[str]:
    """Returns a line per component: name, version."""
    components = [("mqtool", __version__), ("python", platform.python_version())]
    components += [(name, _version_of(name)) for name in _LIBRARIES]
    crc = f"isal {_version_of('isal')}" if _has_isal() else "zlib"
    return [f"{name} {value}" for name, value in (*components, ("crc32", crc))]


def _has_isal() -> bool:
    """Whether isal is used, like `mqtool.records.crc`, which is not imported because it loads numpy."""
    try:
        import_module("isal.isal_zlib")
    except ImportError:
        return False
    return True


def _version_of(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "not installed"
