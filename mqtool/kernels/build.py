"""Compiles the kernels into a file, in a separate process: `python -m mqtool.kernels.build DIRECTORY CPU`."""

import importlib
import os
import sys
from pathlib import Path

MODULES = (
    "entries",
    "field_records",
    "frame_scan",
    "gets",
    "groups",
    "json_lines",
    "objects",
    "plain_records",
    "puts",
    "queries",
    "records",
    "trailers",
    "units",
)
"""That declare kernels."""


def main(directory: Path, cpu: str) -> None:
    """Compiles all kernels for a processor into a file, which appears complete or not at all, and prints its path."""
    os.environ |= {"NUMBA_CPU_NAME": cpu, "NUMBA_CPU_FEATURES": ""}  # read where numba is imported
    for name in MODULES:
        importlib.import_module(f"mqtool.kernels.{name}")
    from mqtool.kernels import choice, compiling  # noqa: PLC0415 - after that

    image = compiling.build(cpu)
    target = directory / choice.file_name(cpu)
    if directory.name == "compiled":  # the package's: files of other sources are of no use
        for other in directory.glob(f"{cpu}-*.code"):
            other.unlink(missing_ok=True)
    part = target.with_name(f"{target.name}.{os.getpid()}")
    part.write_bytes(image.to_bytes())
    part.replace(target)
    sys.stdout.write(f"{target}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
