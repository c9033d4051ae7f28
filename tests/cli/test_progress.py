"""Progress goes to stderr only, as JSON lines where asked for."""

import json

import pytest

from mqtool.cli.options import ProgressMode
from mqtool.cli.progress import INTERVAL, JsonLinesProgress, Silent, progress


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


def test_json_progress_of_failed_work_does_not_say_finished(capsys):
    with pytest.raises(ValueError, match="x"), JsonLinesProgress("dump", 0, 10, Clock()):
        raise ValueError("x")
    assert lines(capsys) == []


@pytest.mark.parametrize("mode", [ProgressMode.NONE, ProgressMode.AUTO])
def test_there_is_no_progress_where_nobody_looks(mode, capsys):
    with progress(mode, "dump", 0, 10) as bar:
        bar.update(5)
    assert isinstance(bar, Silent)
    assert lines(capsys) == []


@pytest.mark.parametrize(("stdout", "shown"), [(True, False), (False, True)])
def test_a_bar_is_drawn_on_a_terminal_unless_data_scrolls_there(monkeypatch, stdout, shown):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr("sys.stdout.isatty", lambda: stdout)
    with progress(ProgressMode.AUTO, "dump", 0, 10) as bar:
        bar.update(5)
    assert (not isinstance(bar, Silent)) is shown
