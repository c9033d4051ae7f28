"""`mqtool(…)` runs the program in this process and returns what it printed and how it ended."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from mqtool.cli import cells
from mqtool.cli.app import run


@dataclass(frozen=True)
class Result:
    """How one run ended."""

    code: int
    stdout: bytes
    stderr: str

    @property
    def text(self) -> str:
        """Stdout as text."""
        return self.stdout.decode()

    @property
    def document(self) -> Any:
        """Stdout as one JSON document."""
        return json.loads(self.stdout)

    @property
    def lines(self) -> list[Any]:
        """Stdout as JSON Lines."""
        return [json.loads(line) for line in self.stdout.splitlines()]


Mqtool = Callable[..., Result]


@pytest.fixture
def mqtool(capsysbinary: pytest.CaptureFixture[bytes]) -> Iterator[Mqtool]:
    def call(*arguments: object) -> Result:
        capsysbinary.readouterr()
        code = run([str(argument) for argument in arguments])
        captured = capsysbinary.readouterr()
        return Result(code, captured.out, captured.err.decode())

    yield call
    cells.choose_zone(cells.DEFAULT_ZONE)  # that of a run counts until the process ends
