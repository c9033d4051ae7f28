"""Values of options are what Typer's own conversion makes of them, and pydantic is not loaded for them."""

import datetime as dt
import os
from enum import Enum
from pathlib import Path
from typing import Annotated, Literal

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
def test_values_are_those_of_typer(line, monkeypatch, request):
    plain = parsed(line)
    monkeypatch.setattr(app, "convert_plainly", lambda command: None)
    app.parsed_command.cache_clear()
    request.addfinalizer(app.parsed_command.cache_clear)
    assert plain == parsed(line)


def test_subcommands_too(monkeypatch, request):
    def answer() -> object:
        group = LazyCommands()["plan"]
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
    app.parsed_command.cache_clear()
    request.addfinalizer(app.parsed_command.cache_clear)
    assert plain == answer()


class Level(Enum):
    LOW = "low"


def taken(words, annotation, **more):
    """The values of a command with one option of a kind that no command of mqtool may have."""
    program = typer.Typer()

    @program.command()
    def command(value: Annotated[annotation, typer.Option(**more)]) -> None:
        pass

    found = typer.main.get_command(program)
    if app.convert_plainly is not None:
        app.convert_plainly(found)
    try:
        return found.make_context("command", words).params
    except typer.BadParameter as error:
        return error.message


@pytest.mark.parametrize(
    ("annotation", "more"),
    [
        (Path, {"exists": True}),
        (Path, {"resolve_path": True}),
        (Path, {"dir_okay": False}),
        (Path, {"readable": True}),
        (Literal["a", "here"], {}),
        (Level, {"case_sensitive": False}),
        (dt.datetime, {}),
        (float, {"max": 2}),
    ],
    ids=str,
)
@pytest.mark.parametrize("value", ["here", "missing", ".", "a", "LOW", "low", "1.5", "3", "2026-01-02"])
def test_kinds_of_values_that_take_more_are_left_to_typer(tmp_path, monkeypatch, annotation, more, value):
    monkeypatch.chdir(tmp_path)
    Path("here").touch()
    plain = taken(["--value", value], annotation, **more)
    monkeypatch.setattr(app, "convert_plainly", None)
    assert plain == taken(["--value", value], annotation, **more)


def test_a_file_that_cannot_be_read_is_left_to_typer(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("here").touch()
    monkeypatch.setattr("os.access", lambda _path, mode: mode != os.R_OK)
    plain = taken(["--value", "here"], Path, readable=True)
    monkeypatch.setattr(app, "convert_plainly", None)
    assert plain == taken(["--value", "here"], Path, readable=True)
    assert "not readable" in str(plain)
