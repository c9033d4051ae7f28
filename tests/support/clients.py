"""Real clients of RocketMQ in other languages, unmodified, as their package managers deliver them.

Each function returns the command that runs our program in `tests/interop/` on the client, built once and kept beside
RocketMQ in the cache (MQTOOL_ROCKETMQ_CACHE names another place); it raises Unavailable with the reason.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.support.rocketmq import SOURCES, Unavailable

PROGRAMS = SOURCES.parent
BUILD_SECONDS = 240
WHEEL = "rocketmq==0.4.4"
"""Brings the C++ client as a library."""
GRPC_WHEEL = "rocketmq-python-client==5.1.2"
QUICK_GO = {"CGO_ENABLED": "0", "GOFLAGS": "'-gcflags=all=-N -l'"}
"""Variables with which Go compiles its library and a client in less time: without optimisation and without C."""


def go() -> list[str]:
    """The Go client, compiled."""
    return _go("go", PROGRAMS / "go")


def h2spec() -> list[str]:
    """The conformance suite for HTTP/2, compiled."""
    return _go("h2spec", PROGRAMS / "h2spec", "github.com/summerwind/h2spec/cmd/h2spec")


def _go(name: str, source: Path, package: str = ".") -> list[str]:
    """Returns the command of a program for Go."""

    def build(directory: Path) -> None:
        for file in ("main.go", "go.mod", "go.sum"):
            shutil.copy(source / file, directory)
        variables = [f"{name}={value}" for name, value in QUICK_GO.items()]
        _run("env", *variables, "go", "build", "-o", "client", package, directory=directory)

    return [str(_built(name, "go", source, build) / "client")]


def javascript() -> list[str]:
    """ali-ons, for Node.js."""
    return _node("js", PROGRAMS / "js")


def cpp() -> list[str]:
    """The C++ client, as the library in a Python wheel."""
    source = PROGRAMS / "cpp"

    def build(directory: Path) -> None:
        shutil.copy(source / "main.py", directory)
        _run(
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--only-binary",
            ":all:",
            "--target",
            str(directory),
            WHEEL,
            directory=directory,
        )

    return [sys.executable, str(_built("cpp", sys.executable, source, build) / "main.py")]


def grpc_javascript() -> list[str]:
    """The official gRPC client for Node.js."""
    return _node("grpc-js", PROGRAMS / "grpc_js")


def _node(name: str, source: Path) -> list[str]:
    """Returns the command of a program for Node.js, with its packages installed."""

    def build(directory: Path) -> None:
        for file in ("main.js", "package.json"):
            shutil.copy(source / file, directory)
        _run("npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--silent", directory=directory)

    directory = _built(name, "npm", source, build)
    if not shutil.which("node"):
        raise Unavailable("no node")
    return ["node", str(directory / "main.js")]


def grpc_python() -> list[str]:
    """The official gRPC client for Python, in an environment of its own: it pins libraries that mqtool uses too."""
    source = PROGRAMS / "grpc_python"

    def build(directory: Path) -> None:
        shutil.copy(source / "main.py", directory)
        _run(sys.executable, "-m", "venv", "venv", directory=directory)
        pip = (str(directory / "venv" / "bin" / "python"), "-m", "pip", "install", "--quiet")
        _run(*pip, "--disable-pip-version-check", GRPC_WHEEL, directory=directory)

    directory = _built("grpc-python", sys.executable, source, build)
    packages = next((directory / "venv" / "lib").glob("python3*/site-packages"))
    return ["env", f"PYTHONPATH={packages}", sys.executable, str(directory / "main.py")]


def grpc_java() -> list[str]:
    """The official gRPC client for Java."""
    source = PROGRAMS / "grpc_java"

    def build(directory: Path) -> None:
        for file in ("Main.java", "pom.xml"):
            shutil.copy(source / file, directory)
        copying = ("dependency:copy-dependencies", f"-DoutputDirectory={directory / 'lib'}")
        _run("mvn", "-q", "-B", "-f", str(directory / "pom.xml"), *copying, directory=directory)
        _run("javac", "-nowarn", "-proc:none", "-cp", "lib/*", "-d", "classes", "Main.java", directory=directory)

    directory = _built("grpc-java", "mvn", source, build)
    if not shutil.which("java"):
        raise Unavailable("no java")
    return ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{directory / 'classes'}:{directory / 'lib'}/*", "Main"]


def grpc_go() -> list[str]:
    """The official gRPC client for Go, compiled."""
    return _go("grpc-go", PROGRAMS / "grpc_go")


GRPC_CLIENTS: Mapping[str, Callable[[], list[str]]] = {
    "Java": grpc_java,
    "Python": grpc_python,
    "Node.js": grpc_javascript,
    "Go": grpc_go,
}
"""The official clients of RocketMQ 5, by the name that docs/serve.md gives them."""

CLIENTS: Mapping[str, Callable[[], list[str]]] = {"go": go, "javascript": javascript, "c++": cpp}


def _built(name: str, program: str, source: Path, build: Callable[[Path], None]) -> Path:
    if not shutil.which(program):
        raise Unavailable(f"no {program}")
    state = hashlib.sha256(
        b"".join(path.read_bytes() for path in sorted(source.iterdir()) if path.is_file())
    ).hexdigest()
    cache = Path(os.environ.get("MQTOOL_ROCKETMQ_CACHE") or Path.home() / ".cache" / "mqtool" / "rocketmq") / "clients"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = cache / f"{name}-{state[:16]}"
        if not found.exists():
            unfinished = cache / f"{name}-unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            build(unfinished)
            unfinished.rename(found)
        return found


def _run(*command: str, directory: Path) -> None:
    try:
        result = subprocess.run(
            command,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BUILD_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{command[0]} {command[1]}: nothing after {BUILD_SECONDS} s") from None
    if result.returncode:
        said = (result.stderr + result.stdout).strip().splitlines()
        raise Unavailable(f"{command[0]} {command[1]}: {said[-1][:300] if said else result.returncode}")
