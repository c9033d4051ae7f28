"""Checks files for results: they must be outside the store."""

from pathlib import Path

from mqtool.errors import UsageError


def check_result_file(store: Path, file: Path) -> None:
    """Checks that a file to be written is neither in the store nor a device that it would replace.

    Raises:
        UsageError: it is.
    """
    from mqtool.store.named_files import is_inside, require_regular

    require_regular(file)
    if is_inside(file, store):
        raise UsageError(f"{file}: this is inside the store, which is only read; name a file elsewhere")
