"""`mqtool serve` as its user meets it: one line when it is ready, an orderly end, refusals in one line."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import jsonschema
import pytest

from mqtool.cli.reference import schemas
from tests.house.modules import ROOT
from tests.support.remoting import Client, bodies
from tests.unit.server.broker.conftest import until


@pytest.fixture
def serve() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts `mqtool serve` on free ports; what runs in the end is killed."""
    started: list[subprocess.Popen[bytes]] = []

    def start(store: Path, *options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "mqtool", "serve", str(store), "--port", "0", "--namesrv-port", "0", *options]
        started.append(
            subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT
            )
        )
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def ready(process: subprocess.Popen[bytes]) -> dict:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_it_says_where_it_is_and_ends_cleanly_on_request(serve, tmp_path, number):
    process = serve(tmp_path / "store", "--admin-port", "0")
    line = ready(process)
    schema = json.loads(schemas()["serve"])
    jsonschema.validate(line, schema)
    with Client(line["broker"]) as client:
        assert client.put("Said").code == 0
    process.send_signal(number)
    assert process.wait(30) == 0
    assert not (tmp_path / "store" / "abort").exists()


@pytest.mark.slow
def test_one_for_tests_has_a_clock_to_advance(serve, tmp_path):
    process = serve(tmp_path / "store", "--test", "--advertise", "192.0.2.7", "--yes")
    port = ready(process)["admin"].rpartition(":")[2]
    before = time.time() * 1000
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/clock/advance", b'{"days": 1}') as answer:
        assert json.load(answer) >= before + 86_400_000


@pytest.mark.slow
def test_a_killed_one_has_lost_nothing_that_was_acknowledged(serve, tmp_path):
    process = serve(tmp_path / "store")
    with Client(ready(process)["broker"]) as client:
        for number in range(50):
            assert client.put("Killed", b"m%d" % number).code == 0
    process.kill()
    process.wait(30)
    with Client(ready(serve(tmp_path / "store"))["broker"]) as client:
        until(lambda: client.call(30, topic="Killed", queueId=0).fields["offset"] == "50")
        found: list[bytes] = []
        while len(found) < 50:
            found += bodies(client.pull("Killed", 0, len(found)))
        assert found == [b"m%d" % number for number in range(50)]


def refused(process: subprocess.Popen[bytes]) -> tuple[int, bytes]:
    _, errors = process.communicate(timeout=60)
    return process.returncode, errors


@pytest.mark.slow
def test_a_store_that_is_open_elsewhere_is_refused_in_one_line(serve, tmp_path):
    ready(serve(tmp_path / "store"))
    code, errors = refused(serve(tmp_path / "store"))
    assert code not in (0, 1)
    assert b"Traceback" not in errors
    assert errors.startswith(b"mqtool: ")
    assert errors.count(b"\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [("--set", "maxMessageSize=big"), ("--tls-cert", "missing.pem"), ("--advertise", "nowhere.invalid")],
    ids=["no number", "no certificate", "no address"],
)
def test_options_that_make_no_sense_are_refused_in_one_line(serve, tmp_path, options):
    code, errors = refused(serve(tmp_path / "store", *options))
    assert code not in (0, 1)
    assert b"Traceback" not in errors
    assert errors.splitlines()[-1].startswith(b"mqtool: ")


@pytest.mark.slow
def test_a_port_in_use_is_said_with_the_option_that_changes_it(serve, tmp_path):
    address = ready(serve(tmp_path / "store"))["broker"]
    port = address.rpartition(":")[2]
    for option in ("--port", "--namesrv-port"):
        other = serve(tmp_path / "other", option, port)
        _, stderr = other.communicate(timeout=60)
        assert other.returncode == 2
        line = f"mqtool: cannot listen on {address}: the port is in use; free it, or choose another with {option}"
        assert stderr.decode().splitlines()[-1].startswith(line)


@pytest.mark.slow
def test_on_a_terminal_it_says_in_a_sentence_where_it_is(tmp_path):
    master, slave = pty.openpty()
    words = ["serve", str(tmp_path / "store"), "--port", "0", "--namesrv-port", "0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "mqtool", *words],
        stdin=subprocess.DEVNULL,
        stdout=slave,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
    )
    os.close(slave)
    try:
        with os.fdopen(master, "rb", buffering=0) as terminal:
            said = terminal.read(4096).decode()
        address = r"127\.0\.0\.1:\d+"
        assert re.fullmatch(rf"Ready\. Name server {address}, broker and gRPC {address} \(Ctrl-C stops\)\r\n", said)
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
