"""How runs end: exit codes, the one line on stderr, JSON on failure, signals, closed pipes."""

import os
import re
import runpy
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer

from mqtool import __version__, native
from mqtool.cli import app
from mqtool.cli.commands import COMMANDS, Command
from mqtool.cli.exits import GATE_HINTS, MEANINGS, QUIET, RULES, ExitCode, failure_of, says_what_to_do
from mqtool.errors import RefusedError
from tests.cli import probe
from tests.support.native import IS_COMPILED

ROOT = Path(__file__).resolve().parents[2]

CODES = {
    "none": 0,
    "usage": 2,
    "not-found": 1,
    "not-a-store": 4,
    "locked": 4,
    "unsupported": 4,
    "config-file": 2,
    "layout": 4,
    "corruption": 1,
    "format": 1,
    "rejected": 4,
    "protocol": 6,
    "store-io": 74,
    "closed": 70,
    "connection": 6,
    "permission": 74,
    "os": 74,
    "bug": 70,
    "interrupt": 130,
    "terminate": 143,
    "pipe": 141,
    "lines": 2,
}
SILENT = {"none", "interrupt", "terminate", "pipe"}


@pytest.fixture(autouse=True)
def _probe(monkeypatch):
    monkeypatch.setitem(COMMANDS, "probe", Command("Test", "A command made for tests.", "tests.cli.probe"))


def spawn(*arguments: str, **options) -> subprocess.Popen[bytes]:
    """Starts the real program with the probe among its commands."""
    source = (
        "from mqtool.cli import app\n"
        "from mqtool.cli.commands import COMMANDS, Command\n"
        "COMMANDS['probe'] = Command('Test', 'A command made for tests.', 'tests.cli.probe')\n"
        "app.main()"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": environment} | options
    return subprocess.Popen([sys.executable, "-c", source, *arguments], **options)


@pytest.mark.parametrize("end", sorted(probe.ERRORS))
def test_each_kind_of_end_has_its_exit_code(mqtool, end):
    assert mqtool("probe", end).code == CODES[end]


@pytest.mark.parametrize("end", sorted(probe.ERRORS))
def test_a_failure_is_one_printable_line_on_stderr_and_nothing_on_stdout(mqtool, end):
    result = mqtool("probe", end)
    assert result.stdout == b""
    assert result.stderr.count("\n") == (0 if end in SILENT - {"interrupt"} else 1)
    assert result.stderr.replace("\n", "").isprintable()


@pytest.mark.parametrize("end", sorted(set(probe.ERRORS) - SILENT))
def test_json_says_why_it_failed(mqtool, end):
    for output_format in ("json", "jsonl"):
        result = mqtool("probe", end, "--format", output_format)
        assert result.document["ok"] is False
        assert result.document["error"]["message"].split()[0] in result.stderr


def test_json_that_has_begun_is_closed_with_the_error(mqtool):
    document = mqtool("probe", "corruption", "--rows", 2, "--format", "json").document
    assert [row["number"] for row in document["rows"]] == [0, 1]
    assert document["ok"] is False
    assert document["error"]["kind"] == "corruption"
    assert document["error"]["path"] == "/s/commitlog/0"


def test_json_lines_that_have_begun_end_with_the_error(mqtool):
    lines = mqtool("probe", "os", "--rows", 2, "--format", "jsonl").lines
    assert [line.get("number") for line in lines] == [0, 1, None]
    assert lines[2]["error"]["kind"] == "io"


def test_json_is_closed_when_interrupted(mqtool):
    document = mqtool("probe", "interrupt", "--rows", 1, "--format", "json").document
    assert document["ok"] is False
    assert document["error"]["kind"] == "interrupted"


def test_json_lines_end_quietly_when_interrupted(mqtool):
    assert len(mqtool("probe", "interrupt", "--rows", 2, "--format", "jsonl").lines) == 2


def test_the_answer_no_is_not_ok(mqtool):
    result = mqtool("probe", "answer-no", "--rows", 1, "--format", "json")
    assert (result.code, result.document["ok"]) == (1, False)


def test_a_wrong_option_is_a_usage_error_in_the_format_asked_for(mqtool):
    result = mqtool("probe", "none", "--format", "json", "--bogus")
    assert result.code == 2
    assert result.document["error"]["kind"] == "usage"
    assert "--bogus" in result.stderr
    assert "mqtool probe --help" in result.stderr


def test_a_misspelt_command_names_the_right_one(mqtool):
    result = mqtool("inof")
    assert (result.code, result.stdout) == (2, b"")
    assert "'info'" in result.stderr


def test_no_command_prints_the_help_to_stderr(mqtool):
    result = mqtool()
    assert (result.code, result.stdout) == (2, b"")
    assert "Usage: mqtool" in result.stderr


@pytest.mark.parametrize("where", ["before", "after"])
def test_debug_prints_the_traceback(mqtool, where):
    arguments = ("--debug", "probe", "bug") if where == "before" else ("probe", "bug", "--debug")
    result = mqtool(*arguments)
    assert result.code == 70
    assert "Traceback" in result.stderr
    assert "ZeroDivisionError" in result.stderr


def test_a_bug_is_called_one(mqtool):
    assert "this is a bug in mqtool" in mqtool("probe", "bug").stderr


def test_help_lists_every_command_with_its_summary(mqtool):
    result = mqtool("--help")
    assert result.code == 0
    for name, command in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(command.summary[:30])}", result.text, re.MULTILINE)


def test_version_names_what_could_make_a_difference(mqtool):
    lines = dict(line.split(" ", 1) for line in mqtool("--version").text.splitlines())
    assert lines["mqtool"] == __version__
    assert {"python", "numpy", "pyarrow", "native"} <= set(lines)

    assert lines["native"] == ("compiled" if IS_COMPILED else "not compiled" if native.is_enabled else "switched off")


def test_a_closed_pipe_ends_quietly_with_141():
    with spawn("probe", "none", "--rows", "100000", "--format", "jsonl") as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 141


def test_a_pipe_closed_before_the_help_ends_quietly_with_141():
    reader, writer = os.pipe()
    os.close(reader)
    with spawn("--help", stdout=writer) as process:
        os.close(writer)
        assert process.stderr.read() == b""
        assert process.wait() == 141


def test_a_full_disk_is_an_io_error():
    with Path("/dev/full").open("wb") as full, spawn("probe", "none", "--rows", "3", stdout=full) as process:
        errors = process.stderr.read().decode()
        assert process.wait() == 74
    assert errors.count("\n") == 1
    assert "No space left" in errors


@pytest.mark.parametrize(
    ("number", "code", "words"),
    [(signal.SIGINT, 130, b"mqtool: interrupted: nothing was changed\n"), (signal.SIGTERM, 143, b"")],
)
def test_a_signal_ends_at_once_with_its_code(number, code, words):
    with spawn("probe", "wait", "--rows", "1", "--format", "jsonl") as process:
        assert process.stdout.readline().startswith(b"{")
        process.send_signal(number)
        assert process.stderr.read() == words
        assert process.wait() == code


def test_shell_completion_offers_the_commands():
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "_MQTOOL_COMPLETE": "complete_bash",
        "COMP_WORDS": "mqtool ",
        "COMP_CWORD": "1",
    }
    with spawn(env=environment) as process:
        assert {b"info", b"dump", b"get", b"find"} <= set(process.stdout.read().split())
        assert process.wait() == 0


def test_the_page_of_exit_codes_has_every_code_and_every_kind():
    page = (ROOT / "docs" / "exit-codes.md").read_text("utf-8")
    for code in ExitCode:
        assert f"| {int(code)} | {MEANINGS[code]} |" in page
    for rule in RULES:
        assert f"| `{rule.kind}` | {int(rule.code)} |" in page


def test_every_exit_code_has_a_meaning():
    assert set(MEANINGS) == set(ExitCode)


def test_every_kind_of_error_ends_with_what_to_do_next():
    assert [
        rule.kind for rule in RULES if rule.code not in QUIET and not rule.hint and rule.kind != "nothing-to-change"
    ] == []
    for hint in [*GATE_HINTS.values(), *(rule.hint for rule in RULES if rule.hint)]:
        assert failure_of(RefusedError("test", "the disk is on fire", "/data")).message.endswith("to see its state")
        assert says_what_to_do(f"the disk is on fire; {hint}"), hint


def test_a_message_that_contains_an_instruction_gets_no_second_one():
    assert not says_what_to_do("cannot be read: Is a directory")
    error = RefusedError("space", "not enough disk space: need 4 B, 3 B free; free 1 byte", "/data")
    assert failure_of(error).message == str(error)
    assert failure_of(RefusedError("read-only", "cannot be written to", "/data")).message == (
        "/data: read-only: cannot be written to; check owner and mount of the directory"
    )


@pytest.fixture
def in_process(monkeypatch):
    """The module of the program; what `main` would leave changed in this process is undone or not done."""
    monkeypatch.setattr(app, "hide_unused_imports", lambda: None)
    monkeypatch.setattr(app.atexit, "register", lambda *_: None)
    monkeypatch.setattr(app.signal, "signal", lambda *_: None)
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    monkeypatch.setattr(sys, "argv", ["mqtool", "probe", "answer-no", "--rows", "1"])
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    return app


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_without_a_place_to_answer_to_nothing_is_done(in_process, monkeypatch, stream):
    monkeypatch.setattr(in_process, "run", lambda _: pytest.fail("ran"))
    monkeypatch.setattr(sys, stream, None)
    with pytest.raises(SystemExit) as ended:
        in_process.main()
    assert ended.value.code == ExitCode.IO_ERROR


@pytest.mark.parametrize("file", ["__main__.py", "cli/app.py"])
def test_the_package_and_its_module_are_the_program(in_process, capsysbinary, file):
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(Path(app.__file__).parents[1] / file), run_name="__main__")
    assert ended.value.code == ExitCode.NO


def test_what_cannot_be_raised_is_reported_and_only_ctrl_c_repeated(monkeypatch):
    timers, reported = [], []
    monkeypatch.setattr(app.signal, "setitimer", lambda *arguments: timers.append(arguments))
    monkeypatch.setattr(sys, "__unraisablehook__", reported.append)
    bug, interrupt = SimpleNamespace(exc_value=ValueError()), SimpleNamespace(exc_value=KeyboardInterrupt())
    app._interrupt_again(bug)
    assert (reported, timers) == ([bug], [])
    app._interrupt_again(interrupt)
    assert (reported, timers) == ([bug], [(signal.ITIMER_REAL, app._AGAIN_S)])


@pytest.mark.parametrize("cause", [KeyboardInterrupt(), None])
def test_an_older_typer_interrupts_by_an_exception_of_its_own(monkeypatch, capsys, cause):
    def main(**_options):
        raise typer.Abort from cause

    monkeypatch.setattr(
        typer.main, "get_command", lambda _: SimpleNamespace(main=main, params=[], get_help_option=None)
    )
    assert app.run(["probe", "none"]) == ExitCode.INTERRUPTED
    assert capsys.readouterr() == ("", "mqtool: interrupted: nothing was changed\n")


def test_a_reader_that_does_not_read_is_not_waited_for(monkeypatch):
    """The output of an interrupted command is given up after a moment."""
    monkeypatch.setattr(app, "PATIENCE", 0.01)
    waits, before = threading.Event(), signal.getsignal(signal.SIGALRM)
    monkeypatch.setattr(app, "_fail_on_stdout", lambda *_: waits.wait(30))
    app._end_output_in_time(None, None)
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_a_thread_that_is_interrupted_ends_its_output_without_a_clock(mqtool, monkeypatch):
    """Signals reach the main thread only."""
    monkeypatch.setattr(app.signal, "setitimer", lambda *_: pytest.fail("a timer"))
    results = []
    thread = threading.Thread(
        target=lambda: results.append(mqtool("probe", "interrupt", "--rows", 1, "--format", "json"))
    )
    thread.start()
    thread.join(30)
    assert (results[0].code, results[0].document["error"]["kind"]) == (ExitCode.INTERRUPTED, "interrupted")
