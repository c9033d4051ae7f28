"""Ctrl-C ends a command at once: no traceback, no process left behind, exit code 130."""

import contextlib
import fcntl
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.stores import fixture

STORE = fixture("orders-5.5.0/store")
SLOW = ["verify", STORE, "--throttle", "1K"]
LIMIT = 5
"""Seconds: one, and what a loaded machine takes to schedule it."""
BLOCKED = Path(__file__).parents[1] / "support" / "blocked.py"


def reads_the_log(process):
    """Whether a process has a segment open."""
    links = []
    for path in Path(f"/proc/{process}/fd").glob("*"):
        try:
            links.append(str(path.readlink()))
        except OSError:
            continue
    return any("/commitlog/" in link for link in links)


def session_of(leader):
    """Returns the living processes of a session, without its leader."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text("ascii", "replace").rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == leader and int(path.parent.name) != leader and fields[0] != "Z":
            found.append(int(path.parent.name))
    return found


def interrupted(words, is_busy, **more):
    """Starts a program, sends Ctrl-C to its process group once it is busy; returns how it ended."""
    running = subprocess.Popen(words, stderr=subprocess.PIPE, start_new_session=True, **more)
    try:
        latest = time.monotonic() + 60
        while not is_busy(running.pid):
            assert running.poll() is None, running.stderr.read()
            assert time.monotonic() < latest
        os.killpg(running.pid, signal.SIGINT)
        begun = time.monotonic()
        running.wait(20)
        while (left := session_of(running.pid)) and time.monotonic() < begun + LIMIT:
            continue  # multiprocessing's own helper ends once it sees that the others have ended
        took = time.monotonic() - begun
        return running.returncode, running.stderr.read(), took, left
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()
        running.stderr.close()


def check(ended):
    code, errors, took, left = ended
    assert (code, left) == (130, []), errors
    (line,) = errors.splitlines()
    assert line.startswith(b"mqtool: interrupted: ")
    assert took < LIMIT


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_ctrl_c_ends_a_throttled_command(jobs):
    words = [sys.executable, "-m", "mqtool", *map(str, SLOW), "--jobs", jobs]
    check(
        interrupted(
            words,
            lambda leader: any(map(reads_the_log, [leader, *session_of(leader)])),
            stdout=subprocess.DEVNULL,
        )
    )


WORKERS = {
    "export": ("mqtool.export.task:read_partition", ["export", STORE, "--output", "{out}", "--split", "64K"]),
    "rebuild": ("mqtool.rebuild.parts:walk_part", ["rebuild", "consumequeue", STORE, "--output", "{out}"]),
}


@pytest.mark.parametrize("command", list(WORKERS))
def test_ctrl_c_ends_a_command_whose_workers_do_not_answer(command, tmp_path):
    blocked, words = WORKERS[command]
    marks = tmp_path / "marks"
    marks.mkdir()

    def worker_is_blocked(leader):
        return any(int(mark.name) != leader for mark in marks.iterdir())

    words = [str(tmp_path / "out") if word == "{out}" else str(word) for word in words]
    environment = {"MQTOOL_TEST_BLOCKED": blocked, "MQTOOL_TEST_MARKS": str(marks)}
    environment["MQTOOL_NATIVE"] = "0"  # the compiled form needs no worker processes for rebuild
    check(
        interrupted(
            [sys.executable, BLOCKED, *words, "--jobs", "3"],
            worker_is_blocked,
            stdout=subprocess.DEVNULL,
            env={**os.environ, **environment},
        )
    )


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_ctrl_c_ends_a_command_whose_output_nobody_reads(jobs):
    reader, writer = os.pipe()
    try:
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
        words = [sys.executable, "-m", "mqtool", "dump", STORE, "--format", "jsonl", "--jobs", jobs]
        check(interrupted(words, lambda _: is_full(writer), stdout=writer))
    finally:
        os.close(reader)
        os.close(writer)


def is_full(pipe):
    """Whether a write to a pipe would wait."""
    return not select.select([], [pipe], [], 0)[1]


def test_ctrl_c_inside_a_callback_of_fork_is_not_lost():
    program = """
import os, signal, sys, time
from mqtool.cli import app

armed = [True]

def interrupt():
    if armed:
        armed.clear()
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)  # the exception is raised here, where the interpreter can only report it

def slow(arguments):
    try:
        if os.fork() == 0:
            os._exit(0)
        time.sleep(20)
    except KeyboardInterrupt:
        return 130
    return 0

os.register_at_fork(after_in_parent=interrupt)
app.run = slow
app.main()
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=15, check=False)
    assert (ended.returncode, ended.stderr) == (130, b"")
