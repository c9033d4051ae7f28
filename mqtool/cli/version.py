"""`mqtool --version`: versions of mqtool and of the libraries that it uses."""

import platform
from importlib.metadata import PackageNotFoundError, version

from mqtool import __version__, native

_LIBRARIES = ("numpy", "pyarrow", "orjson", "zstandard", "lz4", "typer")


def lines() -> list[str]:
    """Returns a line per component: name, version."""
    components = [("mqtool", __version__), ("python", platform.python_version())]
    components += [(name, _version_of(name)) for name in _LIBRARIES]
    form = "compiled" if native.in_use() else "not compiled" if native.is_enabled else "switched off"
    return [f"{name} {value}" for name, value in (*components, ("native", form))]


def _version_of(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "not installed"
