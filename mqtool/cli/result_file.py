"""A file that takes the result of a check: it is outside the store."""

from pathlib import Path

from mqtool.errors import UsageError


def check_result_file(store: Path, file: Path) -> None:
    """Makes sure that a file to be written is not in the store, and no device that it would take the place of.

    Raises:
        UsageError: it is.
    """
    from mqtool.store.named_files import require_regular
    from mqtool.store.real_path import is_inside

    require_regular(file)
    if is_inside(file, store):
        raise UsageError(f"{file}: lies inside the store, which is only read; name a file elsewhere")
