"""Tests of tables: many small cases in a few tests, because collecting and reporting a test costs more than such a case."""

import functools
import inspect
import shutil
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

_DIRECTORIES = ("tmp_path", "in_memory")
"""Fixtures of which each case gets a directory of its own, which is removed after it."""


def in_parts(names: str, cases: Iterable[Any], size: int = 40) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Has a test run once for each `size` cases of a table; what failed is named with its case, also if it is several.

    Args:
        names: parameters of the test that a case gives, separated by commas.
        cases: a value for one parameter, a tuple or `pytest.param` (without marks) for several.
        size: number of cases in one test.
    """
    columns = [name.strip() for name in names.split(",")]
    rows = [_row(case, len(columns)) for case in cases]
    parts = [rows[start : start + size] for start in range(0, len(rows), size)]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        parameters = inspect.signature(test).parameters.values()
        fixtures = [parameter for parameter in parameters if parameter.name not in columns]

        @functools.wraps(test)
        def run(part: list[tuple[str, tuple[Any, ...]]], **given: Any) -> None:
            failures, skipped = [], []
            for number, (label, values) in enumerate(part):
                own = {name: given[name] / str(number) for name in _DIRECTORIES if name in given}
                for directory in own.values():
                    directory.mkdir()
                try:
                    test(**given | own | dict(zip(columns, values, strict=True)))
                except pytest.skip.Exception as reason:
                    skipped.append(str(reason))
                except Exception as error:  # noqa: BLE001 - reported below
                    error.add_note(f"case {label}")
                    failures.append(error)
                else:
                    for directory in own.values():
                        shutil.rmtree(directory, ignore_errors=True)
            if failures:
                raise ExceptionGroup(f"{len(failures)} of {len(part)} cases failed", failures)
            if len(skipped) == len(part):
                pytest.skip(skipped[0])

        first = inspect.Parameter("part", inspect.Parameter.KEYWORD_ONLY)
        run.__dict__["__signature__"] = inspect.Signature(
            [first, *(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in fixtures)]
        )
        ids = [f"{part[0][0]}..." if len(part) > 1 else part[0][0] for part in parts]
        return pytest.mark.parametrize("part", parts, ids=ids)(run)

    return decorate


def combined(*lists: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Every combination of values of several parameters, as cases."""
    return list(product(*lists))


def _row(case: Any, width: int) -> tuple[str, tuple[Any, ...]]:
    """The label and the values of a case."""
    if isinstance(case, type(pytest.param())):
        assert not case.marks, "a case has no marks"
        return str(case.id or "-".join(map(_label, case.values))), tuple(case.values)
    values = (case,) if width == 1 else tuple(case)
    return "-".join(map(_label, values)), values


def _label(value: Any) -> str:
    if isinstance(value, Path):
        return "/".join(value.parts[-4:])
    return str(getattr(value, "__name__", value))[:60]
