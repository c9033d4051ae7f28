"""Compiles the kernels into a wheel, for each level of x86-64 that mqtool tells apart.

Machine code runs without numba, so whoever installs the wheel reads large logs at full speed at once. The hook is off
unless HATCH_BUILD_HOOK_ENABLE_CUSTOM=true: it downloads numba and takes about a minute. Elsewhere than on Linux and
x86-64 these files are never read.
"""

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface[Any]):
    """The hook that pyproject.toml names."""

    _compiled: "TemporaryDirectory[str] | None" = None

    def dependencies(self) -> list[str]:
        """Returns what compiling needs: numba, and what the package imports on the way."""
        metadata = self.metadata.core
        return [*metadata.dependencies, *metadata.optional_dependencies["fast"]]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Adds the compiled kernels to a wheel; an editable installation compiles its own."""
        if version == "editable" or os.uname().machine != "x86_64":  # LLVM compiles for the machine that it runs on
            return
        self._compiled = TemporaryDirectory()
        environment = os.environ | {"PYTHONPATH": self.root, "PYTHONDONTWRITEBYTECODE": "1"}
        for cpu in ("x86-64", "x86-64-v3"):
            command = [sys.executable, "-m", "mqtool.kernels.build", self._compiled.name, cpu]
            made = Path(subprocess.check_output(command, env=environment, text=True).strip())
            build_data["force_include"][str(made)] = f"mqtool/kernels/compiled/{made.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002 - an interface
        """Removes the compiled files, which are in the wheel now."""
        if self._compiled is not None:
            self._compiled.cleanup()
