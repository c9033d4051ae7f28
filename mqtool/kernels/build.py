"""Compiles the kernels into a file, in a process of its own: `python -m mqtool.kernels.build FILE CPU`."""

import importlib
import os
import sys
from pathlib import Path

MODULES = (
    "entries",
    "frame_scan",
    "gets",
    "groups",
    "json_lines",
    "objects",
    "plain_records",
    "puts",
    "records",
    "trailers",
    "units",
)
"""That declare kernels."""


def main(target: Path, cpu: str) -> None:
    """Compiles all kernels for a processor into a file, which appears complete or not at all."""
    os.environ |= {"NUMBA_CPU_NAME": cpu, "NUMBA_CPU_FEATURES": ""}  # read where numba is imported
    for name in MODULES:
        importlib.import_module(f"mqtool.kernels.{name}")
    from mqtool.kernels import compiling  # noqa: PLC0415 - after that

    image = compiling.build(cpu)
    if target.parent.name == "__pycache__":  # of these sources alone
        for other in target.parent.glob(f"{cpu}-*.code"):
            other.unlink(missing_ok=True)
    part = target.with_name(f"{target.name}.{os.getpid()}")
    part.write_bytes(image.to_bytes())
    part.replace(target)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
