"""Resolves links like `Path.resolve`, but also for symlink loops, which resolve to themselves."""

import os
from pathlib import Path


def real_path(path: Path) -> Path:
    """Returns the absolute path without links; for a loop the part before it is resolved."""
    return Path(os.path.realpath(path))


def is_inside(path: Path, directory: Path) -> bool:
    """Whether a path is a directory or is below it, by whatever name; neither has to exist."""
    return real_path(path).is_relative_to(real_path(directory))


def named_below(directory: Path, path: Path) -> Path:
    """Returns a path inside of a directory in terms of that directory, however both are named; any other as it is."""
    lexical = Path(os.path.abspath(path)), Path(os.path.abspath(directory))  # noqa: PTH100 - without links resolved
    real = real_path(directory)
    for inner, outer in (lexical, (real_path(path.parent) / path.name, real), (real_path(path), real)):
        if inner.is_relative_to(outer):
            return directory / inner.relative_to(outer)
    return path
