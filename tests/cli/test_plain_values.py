"""Values of options are what Typer's own conversion makes of them, and pydantic is not loaded for them."""

import pytest
import typer

from mqtool.cli import app
from mqtool.cli.app import LazyCommands

LINES = [
    "verify store",
    "verify fixtures/orders-5.5.0/store --jobs 2 --format json --topic a --topic b --progress none",
    "verify store --jobs 0",
    "verify store --jobs -1",
    "verify store --jobs two",
    "verify store --jobs 1_0",
    "verify store --format JSON",
    "verify store --format yaml",
    "verify store --throttle 1M",
    "verify store --throttle x",
    "verify store --max-seconds 1.5",
    "dump store --limit 007 --no-crc",
    "dump store --limit 99999999999999999999",
    "info store --deep",
    "get store 1 2 3",
    "rebuild all store --output out",
    "rebuild some store --output out",
    "verify",
]


def parsed(line: str) -> object:
    name, *words = line.split()
    try:
        context = LazyCommands()[name].make_context(name, words)
    except Exception as error:  # noqa: BLE001 - whatever it is, it must be the same
        return type(error).__name__, str(error), getattr(error, "message", "")
    return {key: (type(value), value) for key, value in context.params.items()}


@pytest.mark.parametrize("line", LINES)
def test_values_are_those_of_typer(line, monkeypatch):
    plain = parsed(line)
    monkeypatch.setattr(app, "convert_plainly", lambda command: None)
    assert plain == parsed(line)


def test_subcommands_too(monkeypatch):
    def answer() -> object:
        group = LazyCommands()["offsets"]
        found = {}
        for name, command in group.commands.items():
            try:
                found[name] = command.make_context(name, ["store", "--output", "x"]).params
            except typer.BadParameter as error:
                found[name] = str(error)
            except Exception as error:  # noqa: BLE001
                found[name] = type(error).__name__
        return found

    plain = answer()
    monkeypatch.setattr(app, "convert_plainly", lambda command: None)
    assert plain == answer()
