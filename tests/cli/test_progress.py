"""Progress goes to stderr only, as JSON lines where asked for."""

import json
import os
import re
import subprocess
import sys
from contextlib import nullcontext

import pytest

from mqtool.cli import terminal
from mqtool.cli.app import run
from mqtool.cli.options import ProgressMode
from mqtool.cli.progress import INTERVAL, Bar, Elapsed, JsonLinesProgress, Progress, share_of, show_progress
from tests.support.terminal import ROOT, run_on_terminal


class Clock:
    """Time that passes when told."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def lines(capsys):
    captured = capsys.readouterr()
    assert captured.out == ""
    return [json.loads(line)["progress"] for line in captured.err.splitlines()]


def test_json_progress_prints_at_intervals_and_at_the_end(capsys):
    clock = Clock()
    with JsonLinesProgress("dump", 1000, 5000, clock) as bar:
        bar.update(1500)
        clock.now += INTERVAL
        bar.update(2000)
        bar.update(3000)
        clock.now += INTERVAL
        bar.update(4000)
    assert lines(capsys) == [
        {"what": "dump", "done": 1000, "total": 4000, "per_second": 2000, "seconds_left": 1.5, "finished": False},
        {"what": "dump", "done": 3000, "total": 4000, "per_second": 3000, "seconds_left": 0.3, "finished": False},
        {"what": "dump", "done": 3000, "total": 4000, "per_second": 3000, "seconds_left": 0.3, "finished": True},
    ]


def test_a_bar_of_bytes_is_moved_by_work_that_counts_in_something_else(capsys):
    with JsonLinesProgress("verify", 0, 4000, Clock()) as bar:
        move = share_of(bar, 4000)
        move(0, 0)
        move(3, 8)
    assert [line["done"] for line in lines(capsys)] == [1500]


def test_json_progress_of_failed_work_does_not_say_finished(capsys):
    with pytest.raises(ValueError, match="x"), JsonLinesProgress("dump", 0, 10, Clock()):
        raise ValueError("x")
    assert lines(capsys) == []


@pytest.mark.parametrize("mode", [ProgressMode.NONE, ProgressMode.AUTO])
def test_there_is_no_progress_where_nobody_looks(mode, capsys):
    with show_progress(mode, "dump", 0, 10) as bar:
        bar.update(5)
    assert type(bar) is Progress
    assert lines(capsys) == []


@pytest.mark.parametrize("stdout", [True, False])
def test_a_bar_is_drawn_whenever_stderr_is_a_terminal(monkeypatch, stdout):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr("sys.stdout.isatty", lambda: stdout)
    with show_progress(ProgressMode.AUTO, "dump", 0, 10) as bar:
        bar.update(5)
    assert isinstance(bar, Bar)


def test_work_without_a_bar_shows_how_long_it_takes_until_something_is_printed():
    reader, writer = os.pipe()
    with Elapsed("plan repair", 0.01, writer) as elapsed:
        assert os.read(reader, 100) == b"\r\x1b[2Kplan repair: 0 s"
        terminal.hide_bars()
        assert os.read(reader, 100) == b"\r\x1b[2K"
        terminal.hide_bars()
        elapsed.show()
        assert os.read(reader, 100).endswith(b"plan repair: 0 s")
    os.close(writer)
    assert os.read(reader, 100) == b"\r\x1b[2K"
    assert os.read(reader, 100) == b""
    os.close(reader)


@pytest.mark.parametrize(("command", "is_shown"), [("explain-start", True), ("verify", False), ("serve", False)])
def test_commands_without_a_bar_show_how_long_they_take(monkeypatch, command, is_shown):
    """Not those with a bar, nor those that run until they are stopped."""
    begun = []
    monkeypatch.setattr("mqtool.cli.progress.Elapsed", lambda what: begun.append(what) or nullcontext())
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    run([command, "/no/such/store", *(["--read-only", "--port", "0"] if command == "serve" else [])])
    assert begun == [command] * is_shown


STORE = "fixtures/orders-5.5.0/store"
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def visible(screen: str) -> list[str]:
    """Returns the lines a terminal would show in the end: what was cleared or overwritten is not among them."""
    lines = []
    for line in screen.split("\n"):
        shown = line.rsplit("\x1b[2K", 1)[-1].rsplit("\r", 1)[-1]
        lines.append(CONTROL.sub("", shown))
    return [line for line in lines if line.strip()]


def test_on_a_terminal_a_bar_is_drawn_and_the_rows_are_intact():
    code, screen = run_on_terminal(["dump", STORE, "--format", "jsonl"])
    plain = subprocess.run(
        [sys.executable, "-m", "mqtool", "dump", STORE, "--format", "jsonl"], cwd=ROOT, capture_output=True, check=True
    )
    assert code == 0
    assert "━" in screen
    shown = [json.loads(line) for line in visible(screen) if line.startswith("{")]
    assert shown == [json.loads(line) for line in plain.stdout.splitlines()]


def test_verify_on_a_terminal_draws_a_bar_and_colours_the_state():
    code, screen = run_on_terminal(["verify", STORE])
    assert code == 0
    assert "━" in screen
    assert "\x1b[32mclean\x1b[0m" in screen


@pytest.mark.parametrize("setting", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colour_can_be_switched_off(setting):
    _, screen = run_on_terminal(["verify", STORE, "--progress", "none"], **setting)
    assert ": clean: " in screen
    assert "\x1b[3" not in screen


def test_output_that_is_not_a_terminal_is_never_coloured(mqtool):
    assert b"\x1b" not in mqtool("verify", ROOT / STORE).stdout
