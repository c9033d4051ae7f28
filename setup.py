"""Builds the extension modules of `mqtool.native`, and adds docs/ to the package for `mqtool help`."""

import os
import shutil
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_py import build_py

NATIVE = Path("mqtool", "native")
OPTIMISED = [] if "-O" in os.environ.get("CFLAGS", "") else ["-O3"]  # it would come after what CFLAGS asks for


class BuildWithDocs(build_py):
    """Copies the pages of docs/ into the package; an editable installation reads them where they are."""

    def run(self) -> None:
        """Builds the package, then adds the pages."""
        super().run()
        if self.editable_mode:
            return
        for page in Path("docs").rglob("*.md"):
            target = Path(self.build_lib, "mqtool", page)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(page, target)


def extension(name: str, *further: str) -> Extension:
    """Returns one extension module."""
    return Extension(
        f"mqtool.native.{name}",
        [str(NATIVE / f"{name}.pyx"), *(str(NATIVE / source) for source in further)],
        include_dirs=[str(NATIVE)],
        depends=[str(NATIVE / "bytes.h"), str(NATIVE / "bytes.pxd")],
        extra_compile_args=[*OPTIMISED, "-g0"],
    )


EXTENSIONS = cythonize(
    [extension("logs", "crc32.c"), extension("lines"), extension("engine", "crc32.c")],
    build_dir="build/cython",
    compiler_directives={
        "language_level": 3,
        "boundscheck": False,
        "wraparound": False,
        "initializedcheck": False,
        "cdivision": True,
        "embedsignature": True,
    },
)
for module in EXTENSIONS:
    module.optional = True  # without a compiler it is left out, and mqtool works in Python alone; cythonize drops this

setup(cmdclass={"build_py": BuildWithDocs}, ext_modules=EXTENSIONS)
