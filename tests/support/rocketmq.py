"""The real Apache RocketMQ, fetched by Maven into a cache: a judge for stores that mqtool read, rebuilt or wrote.

`release("5.5.0")` gives a `RocketMQ` or raises `Unavailable` with the reason. The cache is `~/.cache/mqtool/rocketmq`,
or what MQTOOL_ROCKETMQ_CACHE names; nothing is fetched twice. The `rocketmq` fixture in tests/conftest.py skips a test
where there is no Java or Maven.
"""

import contextlib
import fcntl
import functools
import hashlib
import itertools
import json
import os
import shutil
import socket
import struct
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

SOURCES = Path(__file__).resolve().parents[1] / "interop" / "java"
LOGBACK = SOURCES / "logback.xml"
FETCH_SECONDS = 240
START_SECONDS = 120
OPENED = ("java.lang", "java.nio", "java.util", "jdk.internal.ref", "sun.nio.ch")
JAVA = [
    "java",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xmx512m",
    "-Dtls.server.mode=disabled",  # else every start makes a key and a certificate: half of its processor time
    "-Duser.timezone=UTC",
    *[f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED],
    f"-Dlogback.configurationFile={LOGBACK}",
    f"-Drmq.logback.configurationFile={LOGBACK}",
]

Rows = Iterable[Mapping[str, Any]]


class Unavailable(Exception):
    """The real RocketMQ cannot be had on this machine; the text says why."""


@functools.cache
def release(version: str) -> "RocketMQ":
    """The release `version` ("4.9.7", "5.5.0"), fetched and with our drivers compiled."""
    cache = Path(os.environ.get("MQTOOL_ROCKETMQ_CACHE") or Path.home() / ".cache" / "mqtool" / "rocketmq") / version
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _fetch(version, cache)
        return RocketMQ(version, cache, _compile(cache, version))


def _fetch(version: str, cache: Path) -> None:
    if (cache / "complete").exists():
        return
    for program in ("javac", "mvn"):
        if not shutil.which(program):
            raise Unavailable(f"no {program}: install a JDK (17 or newer) and Maven")
    _maven_can_fetch(version, cache)
    (cache / "complete").touch()


def _maven_can_fetch(version: str, cache: Path) -> None:
    if _failed:
        raise Unavailable(_failed[0])
    command = [
        "mvn",
        "--quiet",
        "--batch-mode",
        "--file",
        str(SOURCES / "pom.xml"),
        f"-Drelease={version}",
        "dependency:copy-dependencies",
        f"-DoutputDirectory={cache / 'lib'}",
    ]
    try:
        result = _run(command, timeout=FETCH_SECONDS)
        reason = next(iter((result.stdout + result.stderr).splitlines()), "") if result.returncode else ""
    except subprocess.TimeoutExpired:
        reason = f"nothing after {FETCH_SECONDS} s"
    if reason:
        _failed.append(f"Maven could not fetch RocketMQ {version}: {reason}")
        raise Unavailable(_failed[0])


Configuration = tuple[dict[str, str], dict[str, str]]
"""Keys and values of a properties file, and what a broker takes from them."""

_failed: list[str] = []  # where one release cannot be fetched, the others are not tried


def _compile(cache: Path, version: str) -> Path:
    """Our drivers in a jar; next to it an archive of loaded classes, with which a JVM starts in half of the processor time."""
    sources = sorted([*SOURCES.glob("*.java"), *SOURCES.glob(f"only{version[0]}/*.java")])
    state = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    jar = cache / f"drivers-{state}.jar"
    if not jar.with_suffix(".jsa").exists():
        classes, archive = cache / "unfinished", cache / "unfinished.jsa"
        shutil.rmtree(classes, ignore_errors=True)
        command = ["javac", "-nowarn", "-proc:none", "-d", str(classes), "-cp", f"{cache}/lib/*", *map(str, sources)]
        subprocess.run(command, check=True)
        Path(shutil.make_archive(str(classes), "zip", classes)).rename(jar)
        command = [*JAVA, f"-XX:ArchiveClassesAtExit={archive}", "-cp", f"{jar}:{cache}/lib/*", "Classes"]
        subprocess.run(command, check=True, capture_output=True)
        archive.rename(jar.with_suffix(".jsa"))
    return jar


@dataclass
class RocketMQ:
    """One release. Brokers that were started and not stopped are killed by `close`."""

    version: str
    cache: Path
    drivers: Path
    brokers: list["Broker"] = field(default_factory=list)

    def answers(
        self,
        store: Path,
        config: Path | Mapping[str, Any],
        *,
        work: Path,
        gets: Rows = (),
        queries: Rows = (),
        times: Rows = (),
    ) -> dict[str, list[dict[str, Any]]]:
        """What the release's own DefaultMessageStore says about a copy of a store.

        Args:
            store: root of the store; it is not touched.
            config: broker.conf, or the keys in it, that shape the files.
            work: a new directory, made here, in which the copy is opened; `work/store` is what the broker left of it.
            gets: `getMessage` calls: topic, queueId, offset, max, tags (None: no filter). Other names in a row are
                ignored, so recorded answers can be passed as they are.
            queries: `queryMessage` calls: topic, key, and if wanted max (32), begin (0), end (2**63 - 1).
            times: `getOffsetInQueueByTime` calls: topic, queueId, timestamp.

        Returns:
            Lists in the form of the fixtures' answers: "messages" (the whole log), "gets", "queries", "times"; "queues"
            has topic, queueId, minOffset, maxOffset and "served", the physical offsets that a consumer from the start
            gets; "opened" is one row: loaded, minPhyOffset, maxPhyOffset.
        """
        work.mkdir(parents=True)
        copy = sparse_copy(store, work / "store")
        if not isinstance(config, Path):
            config = write_properties(work / "broker.conf", config)
        command = self._java("Answers", str(copy), str(config), home=work)
        result = _run(command, input="".join(_questions(gets, queries, times)))
        if result.returncode == 2:
            raise AssertionError(f"RocketMQ {self.version} could not answer: {result.stderr[-4000:]}")
        found: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for line in result.stdout.split("\n")[:-1]:
            kind, _, answer = line.partition("\t")
            found[kind].append(json.loads(answer))
        return found

    def expressions(self, questions: Iterable[tuple[str, Mapping[str, str]]], *, work: Path) -> list[str]:
        """What the release makes of SQL92 expressions over properties: true, false, null, other, throws or refused."""
        work.mkdir(parents=True, exist_ok=True)
        lines = [_words(text, *(word for pair in held.items() for word in pair)) for text, held in questions]
        result = _run(self._java("Sql", home=work), input="".join(lines))
        assert result.returncode == 0, result.stderr[-4000:]
        return result.stdout.splitlines()

    def configurations(self, files: Path, *, work: Path) -> tuple[dict[str, str], dict[str, Configuration | None]]:
        """What the release takes from properties files.

        Args:
            files: directory of them.
            work: a directory for what the process leaves behind.

        Returns:
            The broker's defaults, and by file name what Java reads in it and what the broker takes of that; None where
            Java refuses the file.
        """
        work.mkdir(parents=True, exist_ok=True)
        result = _run(self._java("Configurations", str(files), str(work / "answers"), home=work))
        assert result.returncode == 0, result.stderr[-4000:]
        answers: dict[str, Configuration | None] = {}
        for line in (work / "answers").read_text().splitlines():
            name, *fields = line.split("\t")
            bar = fields.index("|") if "|" in fields else None
            answers[name] = None if bar is None else (_pairs(fields[:bar]), _pairs(fields[bar + 1 :]))
        defaults = answers.pop("")
        assert defaults is not None
        return defaults[1], answers

    def start_broker(self, directory: Path, **keys: Any) -> "Broker":
        """Start a name server and a broker on `directory/store`, which may be there or not, and wait until both serve.

        Args:
            directory: takes the store, the configuration and what the processes print.
            keys: broker keys, for example `**shape_keys(config)` of a fixture; without them RocketMQ's defaults hold.
                A broker that refuses its store (sizes that do not fit, say) raises AssertionError with its exit status.
        """
        broker = Broker(self, directory)
        self.brokers.append(broker)
        broker.start(keys)
        return broker

    def admin(self, *arguments: str, name_server: str, home: Path | None = None) -> str:
        """Run mqadmin and return what it printed; `home/conf/tools.yml` names the user that it signs as."""
        command = self._java("org.apache.rocketmq.tools.command.MQAdminStartup", *arguments, home=home or self.cache)
        result = _run(command, env=os.environ | {"NAMESRV_ADDR": name_server}, timeout=120)
        return result.stdout + result.stderr

    def close(self) -> None:
        """Kill every broker that still runs."""
        for broker in self.brokers:
            broker.stop(kill=True)
        self.brokers.clear()

    def _java(self, *arguments: str, home: Path) -> list[str]:
        if self.version.startswith("4."):  # 4.9 does not start without these files
            (home / "conf").mkdir(exist_ok=True)
            for part in ("namesrv", "broker", "tools"):
                shutil.copy(LOGBACK, home / "conf" / f"logback_{part}.xml")
        class_path, archive = f"{self.drivers}:{self.cache}/lib/*", self.drivers.with_suffix(".jsa")
        options = [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds*=off"]  # an archive of another Java is not used
        return [*JAVA, *options, f"-Duser.home={home}", f"-Drocketmq.home.dir={home}", "-cp", class_path, *arguments]


@dataclass
class Broker:
    """A running name server and broker of one release.

    Attributes:
        directory: where `store/` is.
        name_server, address: `127.0.0.1:PORT` of each.
    """

    rocketmq: RocketMQ
    directory: Path
    name_server: str = ""
    address: str = ""
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def store(self) -> Path:
        """Root of the broker's store."""
        return self.directory / "store"

    def start(self, keys: Mapping[str, Any]) -> None:
        """Start both processes and wait for the line in which each says that it serves."""
        self.store.mkdir(parents=True, exist_ok=True)
        name_server_port, port = free_ports(1)[0], free_ports(4)[2]
        self.name_server, self.address = f"127.0.0.1:{name_server_port}", f"127.0.0.1:{port}"
        self._launch("namesrv", "org.apache.rocketmq.namesrv.NamesrvStartup", {"listenPort": name_server_port})
        self._launch(
            "broker",
            "org.apache.rocketmq.broker.BrokerStartup",
            {
                "brokerClusterName": "DefaultCluster",
                "brokerName": "broker-a",
                "brokerId": 0,
                "brokerIP1": "127.0.0.1",
                "namesrvAddr": self.name_server,
                "listenPort": port,
                "haListenPort": port + 1,
                "diskMaxUsedSpaceRatio": 95,
                "storePathRootDir": self.store,
                "storePathCommitLog": self.store / "commitlog",
                **keys,
            },
        )
        self._await_registration()

    def admin(self, *arguments: str) -> str:
        """Run mqadmin against this broker's name server."""
        return self.rocketmq.admin(*arguments, name_server=self.name_server)

    def stop(self, *, kill: bool = False) -> None:
        """Stop the broker, then the name server: in order, or as `kill -9` does. Stopping twice does no harm."""
        for process in reversed(self.processes):
            process.kill() if kill else process.terminate()
            process.wait(60)
        self.processes.clear()

    def _await_registration(self) -> None:
        """A broker says that it serves a little before the name server knows it; clients need both."""
        deadline = time.monotonic() + START_SECONDS
        while b"broker-a" not in cluster_information(self.name_server):
            assert time.monotonic() < deadline, "the broker did not register at its name server"
            time.sleep(0.1)

    def _launch(self, name: str, main: str, keys: Mapping[str, Any]) -> None:
        config = write_properties(self.directory / f"{name}.conf", keys)
        command = self.rocketmq._java(main, "-c", str(config), home=self.directory)
        log = self.directory / f"{name}.out"
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.processes.append(process)
        assert process.stdout is not None
        output = _Output(process.stdout, log)
        output.start()
        if not output.serves.wait(START_SECONDS) or output.ended:
            raise AssertionError(
                f"{name} of RocketMQ {self.rocketmq.version} did not start: exit status "
                f"{process.wait() if output.ended else None}, {log.read_text('utf-8')[-2000:]!r}"
            )


class _Output(threading.Thread):
    """Keeps what a process prints; `serves` is set when it says that it serves, or has ended."""

    def __init__(self, pipe: IO[str], log: Path) -> None:
        super().__init__(daemon=True)
        self.pipe, self.log = pipe, log
        self.serves, self.ended = threading.Event(), False

    def run(self) -> None:
        """Read until the process closes its output."""
        with self.pipe, self.log.open("w", encoding="utf-8") as kept:
            for line in self.pipe:
                kept.write(line)
                kept.flush()
                if "boot success" in line:
                    self.serves.set()
        self.ended = True
        self.serves.set()


def _run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    if "input" not in options:
        options["stdin"] = subprocess.DEVNULL
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def _pairs(fields: Iterable[str]) -> dict[str, str]:
    pairs = (field.split("=") for field in fields)
    return {bytes.fromhex(key).decode("utf-16-be"): bytes.fromhex(value).decode("utf-16-be") for key, value in pairs}


def _questions(gets: Rows, queries: Rows, times: Rows) -> Iterator[str]:
    for row in gets:
        tags = [row["tags"]] if row.get("tags") is not None else []
        yield _words("get", row["topic"], row["queueId"], row["offset"], row["max"], *tags)
    for row in queries:
        begin, end = row.get("begin", 0), row.get("end", (1 << 63) - 1)
        yield _words("query", row["topic"], row["key"], row.get("max", 32), begin, end)
    for row in times:
        yield _words("time", row["topic"], row["queueId"], row["timestamp"])


def _words(*words: Any) -> str:
    return " ".join(quote(str(word), safe="") for word in words) + "\n"


def sparse_copy(source: Path, target: Path) -> Path:
    """Copy a store, leaving holes where it is zero."""
    subprocess.run(["cp", "-r", "--sparse=always", str(source), str(target)], check=True)
    subprocess.run(["chmod", "-R", "u+w", str(target)], check=True)
    return target


def write_properties(path: Path, keys: Mapping[str, Any]) -> Path:
    """Write a Java properties file."""
    values = {key: str(value).lower() if isinstance(value, bool) else value for key, value in keys.items()}
    path.write_text("".join(f"{key}={value}\n" for key, value in values.items()), "utf-8")
    return path


def cluster_information(name_server: str) -> bytes:
    """The brokers that a name server knows: the answer to GET_BROKER_CLUSTER_INFO (106), not decoded."""
    host, _, port = name_server.partition(":")
    header = json.dumps({"code": 106, "language": "PYTHON", "version": 0, "opaque": 1, "flag": 0}).encode()
    connection = socket.create_connection((host, int(port)), timeout=START_SECONDS)
    with connection, connection.makefile("rwb") as stream:
        stream.write(struct.pack(">ii", 4 + len(header), len(header)) + header)
        stream.flush()
        return stream.read(struct.unpack(">i", stream.read(4))[0])


def free_ports(count: int) -> range:
    """Consecutive ports of the loopback that nobody listened on a moment ago.

    They are below the ports that the kernel gives to outgoing connections, which could take one before a broker does;
    each process of a test run draws from its own block and never twice in a row the same.
    """
    while True:
        start = next(_PORTS)
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(start, start + count):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
            return range(start, start + count)


def _port_starts() -> Iterator[int]:
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKER_BLOCKS
    first = FIRST_PORT + worker * PORTS_OF_A_WORKER
    steps = range(first, first + PORTS_OF_A_WORKER, PORTS_A_BROKER)
    turn = os.getpid() % len(steps)  # two runs beside each other rarely meet
    yield from itertools.cycle([*steps[turn:], *steps[:turn]])


FIRST_PORT, WORKER_BLOCKS, PORTS_OF_A_WORKER, PORTS_A_BROKER = 10_000, 16, 1_280, 8
"""Blocks of ports, 10,000 to 30,479; Linux gives 32,768 and above to outgoing connections."""
_PORTS = _port_starts()
