"""`mqtool serve` as a process of its own, for tests with real clients and real brokers."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.support.rocketmq import write_properties

KEYS = {
    "brokerName": "broker-a",
    "brokerClusterName": "DefaultCluster",
    "mappedFileSizeCommitLog": 262_144,
    "mappedFileSizeConsumeQueue": 20_000,
    "maxHashSlotNum": 1_000,
    "maxIndexNum": 4_000,
    "flushConsumerOffsetInterval": 100,
    "waitTimeMillsInSendQueue": 10_000,
}
"""Small files, and offsets on disk at once; for the real broker as well."""


class Served:
    """`mqtool serve` as a process."""

    def __init__(self, store: Path, directory: Path, keys: Mapping[str, object] = KEYS) -> None:
        config, log = write_properties(directory / "serve.conf", keys), directory / "serve.log"
        self.log = log.open("ab")
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "mqtool",
                "serve",
                str(store),
                "--port",
                "0",
                "--namesrv-port",
                "0",
                "--config",
                str(config),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self.log,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, log.read_text("utf-8")[-3000:]
        self.addresses = json.loads(line)
        self.address, self.name_server = self.addresses["broker"], self.addresses["namesrv"]

    def stop(self, *, kill: bool = False) -> None:
        """Stops as SIGTERM or SIGKILL do."""
        self.process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        code = self.process.wait(60)
        assert code == (-signal.SIGKILL if kill else 0)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.log.close()


def until(found: Callable[[], object]) -> None:
    """Waits for what another process does."""
    deadline = time.monotonic() + 60
    while not found():
        assert time.monotonic() < deadline, "did not come about"
        time.sleep(0.02)
