"""Where a path leads once links are followed; unlike `Path.resolve` for a loop of links too, which leads to itself."""

import os
from pathlib import Path


def real_path(path: Path) -> Path:
    """Returns the absolute path without links; of a loop the part up to it without."""
    return Path(os.path.realpath(path))


def is_inside(path: Path, directory: Path) -> bool:
    """Whether a path is a directory or lies below it, by whatever name; neither has to be there."""
    return real_path(path).is_relative_to(real_path(directory))
