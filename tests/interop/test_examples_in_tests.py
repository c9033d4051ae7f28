"""The examples of "A broker in your test suite" run as they are shown, with the tools that their readers use."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.clients import QUICK_GO, grpc_javascript, grpc_python
from tests.support.rocketmq import Unavailable
from tests.support.tiers import night

pytestmark = [pytest.mark.interop, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "docs" / "tutorials" / "in-tests"
MAPPED_PORTS = Path(__file__).parent / "mapped_ports"


def pytest_() -> list[str]:
    """pytest, with the official client for Python."""
    return [*grpc_python()[:-1], "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]


def maven() -> list[str]:
    """JUnit, by Maven."""
    return [_tool("mvn"), "-q", "-B", "test"]


def go() -> list[str]:
    """go test."""
    return [_tool("go"), "test", "./..."]


def node() -> list[str]:
    """The test runner of Node.js, with the official client."""
    modules = Path(grpc_javascript()[-1]).parent / "node_modules"
    return ["env", f"NODE_PATH={modules}", _tool("node"), "--test"]


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise Unavailable(f"no {name}")
    return found


@pytest.mark.parametrize(
    ("name", "runner"),
    [("pytest", pytest_), ("junit", maven), ("go", go), ("node", node), night("testcontainers", maven)],
)
def test_an_example_passes(name, runner, tmp_path):
    try:
        command = runner()
    except Unavailable as reason:
        if os.environ.get("MQTOOL_REQUIRE_INTEROP"):
            raise
        pytest.skip(str(reason))
    shutil.copytree(EXAMPLES / name, tmp_path / name)
    if name == "testcontainers":  # a process behind forwarders takes the place of the container, whose ports are mapped
        shutil.copytree(MAPPED_PORTS, tmp_path / name / "src" / "test" / "java", dirs_exist_ok=True)
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "mqtool").write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m mqtool "$@"\n')
    (tools / "mqtool").chmod(0o755)
    environment = os.environ | QUICK_GO | {"PATH": f"{tools}:{os.environ['PATH']}"}
    if name == "junit":
        environment["MQTOOL"] = "env mqtool"  # several words, as those of a container
    if name == "pytest":
        environment["HOME"] = str(tmp_path)  # the client logs into it
    ran = subprocess.run(
        command,
        cwd=tmp_path / name,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
        env=environment,
    )
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
