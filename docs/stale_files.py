"""The last step of every generator of documentation: write its files, or name those that are out of date."""

import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def write_or_check(files: Mapping[Path, str]) -> int:
    """Writes the files whose text differs and prints their names; with `--check` in the arguments it only prints them.

    Returns:
        The exit code: 1 if a file is out of date and was not written.
    """
    check = "--check" in sys.argv[1:]
    stale = [path for path, text in files.items() if not path.exists() or path.read_text("utf-8") != text]
    for path in stale:
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(files[path], "utf-8")
        print(f"{path.relative_to(ROOT)}: {'out of date' if check else 'written'}")
    return int(check and bool(stale))
