"""A standalone Spark on loopback: a master and workers, each a process of its own."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import sysconfig
import threading
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from mqtool.verify import Verification

ROOT = Path(__file__).resolve().parents[2]
_STARTED = re.compile(r"(?:Starting Spark master at|registered with master) (spark://\S+)")


class _Daemon:
    """A process that logs to a file, once it has said that it is ready."""

    def __init__(self, command: list[str], environment: dict[str, str], log: Path) -> None:
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        self._log = log
        self._thread = threading.Thread(target=self._drain, daemon=True)

    def ready(self) -> str:
        """Waits until it is ready; returns the master's URL."""
        assert self.process.stderr is not None
        lines = []
        for line in self.process.stderr:
            lines.append(line)
            found = _STARTED.search(line)
            if found:
                self._log.write_text("".join(lines))
                self._thread.start()
                return found[1].rstrip(".")
        raise AssertionError("".join(lines))

    def _drain(self) -> None:
        assert self.process.stderr is not None
        with self._log.open("a") as file:
            file.writelines(self.process.stderr)

    def stop(self) -> None:
        """Ends it; nothing of it is left."""
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self._thread.ident is not None:
            self._thread.join()
        assert self.process.stderr is not None
        self.process.stderr.close()


@dataclass
class SparkCluster:
    """A running cluster.

    Attributes:
        master: its URL.
        workers: process ids of the workers.
    """

    master: str
    workers: list[int]

    def kill_executor(self) -> int | None:
        """Kills one executor as the system would for want of memory; returns its process id, None if none runs."""
        for worker in self.workers:
            for process in _children(worker):
                if "CoarseGrainedExecutorBackend" in _command(process):
                    os.kill(process, signal.SIGKILL)
                    return process
        return None


def spark_home() -> Path:
    """The directory of pyspark: programs, jars."""
    return Path(str(import_module("pyspark").__file__)).parent


def environment_of(python: Path) -> dict[str, str]:
    """What processes are given that are to run another Python, and to find modules as it does."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SPARK_HOME")}
    return kept | {"PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(spark_home())}


def python_without_mqtool(directory: Path) -> Path:
    """Makes an environment with the libraries of this one, and without mqtool; returns its interpreter."""
    venv.create(directory, symlinks=True)
    python = directory / "bin" / "python"
    libraries = Path(sysconfig.get_path("purelib", vars={"base": str(directory)}))
    for place in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for entry in Path(place).iterdir():
            if "mqtool" not in entry.name and entry.suffix != ".pth" and not (libraries / entry.name).exists():
                (libraries / entry.name).symlink_to(entry)
    return python


@contextlib.contextmanager
def spark_cluster(directory: Path, workers: int = 2, python: Path | None = None) -> Iterator[SparkCluster]:
    """Starts a master and workers of one core each, logs below a directory; stops them at the end.

    Args:
        directory: where they work.
        workers: how many.
        python: interpreter of the executors; None for this one, with this tree's mqtool.
    """
    home = spark_home()
    environment = (environment_of(python) if python else os.environ | {"PYTHONPATH": str(ROOT)}) | {
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": str(python or sys.executable),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_DAEMON_MEMORY": "256m",
    }

    def daemon(name: str, kind: str, *arguments: str) -> _Daemon:
        program = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", "--host", "127.0.0.1"]
        made = _Daemon([*program, "--webui-port", "0", *arguments], environment, directory / f"{name}.log")
        running.callback(made.stop)
        return made

    with contextlib.ExitStack() as running:
        url = daemon("master", "master.Master", "--port", "0").ready()
        started = []
        for number in range(workers):
            room = ("--cores", "1", "--memory", "1g", "--work-dir", str(directory / f"worker-{number}"))
            started.append(daemon(f"worker-{number}", "worker.Worker", *room, url))
        for one in started:
            one.ready()
        yield SparkCluster(url, [one.process.pid for one in started])


def said(found: Verification) -> list[object]:
    """What a check of a store came to, as JSON has it."""
    counts = found.statistics
    return [found.state.value, [repr(one) for one in found.findings], counts.records, counts.units, counts.log_bytes]


def _children(process: int) -> Iterator[int]:
    """Yields all descendants of a process."""
    for thread in Path(f"/proc/{process}/task").glob("*/children"):
        for child in thread.read_text().split():
            yield int(child)
            yield from _children(int(child))


def _command(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return ""
