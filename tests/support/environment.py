"""Environments of programs that tests start."""

import os


def without_coverage() -> dict[str, str]:
    """This process's environment, less what makes a program measure its coverage: that imports and writes more."""
    return {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
