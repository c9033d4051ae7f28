"""The checksums of the fixtures: `python -m tests.support.manifest` writes fixtures/MANIFEST.sha256 anew."""

import hashlib
from pathlib import Path

from tests.support.stores import FIXTURES

MANIFEST = FIXTURES / "MANIFEST.sha256"
UNLISTED = {MANIFEST.name, "README.md", "EMPTY_DIRECTORIES"}


def fixture_files() -> dict[str, Path]:
    """Every file of the fixtures that the manifest has to list, by its path below `fixtures/`."""
    named = ((path.relative_to(FIXTURES).as_posix(), path) for path in FIXTURES.rglob("*") if path.is_file())
    return dict(sorted((name, path) for name, path in named if name not in UNLISTED))


def manifest_text() -> str:
    """The manifest as it should be; `sha256sum --check` understands it."""
    sums = ((hashlib.sha256(path.read_bytes()).hexdigest(), name) for name, path in fixture_files().items())
    return "".join(f"{checksum}  {name}\n" for checksum, name in sums)


if __name__ == "__main__":
    MANIFEST.write_text(manifest_text(), "utf-8")
    print(f"{MANIFEST.name}: {len(fixture_files())} files")
