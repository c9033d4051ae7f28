"""Fresh stores of the real broker, damaged in ways that no fixture has, repaired by the printed advice and by `salvage`, judged by the real store.

`python -m tests.support.repair_trials ROWS.jsonl [--seed N] [PART OF AN ID]…` tries every kind of damage on stores of both releases, shut down and killed.
`tests/interop/test_repair_trials.py` tries all of them at night.
"""

import argparse
import contextlib
import json
import os
import random
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.support.remoting import Client
from tests.support.rocketmq import Broker, RocketMQ, release, sparse_copy, write_properties
from tests.support.stores import tree_digest

SEGMENT, QUEUE_FILE, PAGE = 65_536, 2_000, 4_096
KEYS: dict[str, Any] = {
    "mappedFileSizeCommitLog": SEGMENT,
    "mappedFileSizeConsumeQueue": QUEUE_FILE,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
    "enableLmq": True,
    "enableMultiDispatch": True,
    "transactionTimeOut": 600_000,
    "waitTimeMillsInSendQueue": 20_000,
    "flushConsumerOffsetInterval": 500,
}
SINCE_5: dict[str, Any] = {
    "mapperFileSizeBatchConsumeQueue": 4_600,
    "enableCompaction": True,
    "timerWheelEnable": False,
}
VERSIONS, STOPS = ("4.9.7", "5.5.0"), ("clean", "killed")
BATCH_TOPIC, COMPACT_TOPIC = "Batched", "Compacted"
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
COMMANDS = 4
"""How many commands of advice a store may need."""

Identity = tuple[str, int, str]
"""Topic, queue and unique key of a message."""


@dataclass(frozen=True)
class Written:
    """A store as a broker left it.

    Attributes:
        root: its root directory.
        config: the broker.conf that shapes its files.
        version: release of the broker.
    """

    root: Path
    config: Path
    version: str


def write_store(rocketmq: RocketMQ, directory: Path, seed: int, stop: str, messages: int = 700) -> Written:
    """Has a real broker write a store of `messages` sends and a few positions, and stops or kills it."""
    rng = random.Random(seed)
    keys = KEYS | (SINCE_5 if rocketmq.version >= "5" else {})
    broker = rocketmq.start_broker(directory, **keys)
    with Client(broker.address) as client:
        _send(client, rng, messages, since_5=rocketmq.version >= "5")
        for topic in ("Orders", "Payments"):
            client.call(15, consumerGroup="Readers", topic=topic, queueId=0, commitOffset=rng.randrange(1, 20))
        time.sleep(1.5)  # dispatch, and the timer that stores positions
        if stop == "killed":
            for _ in range(30):
                client.put("Orders", rng.randbytes(200))
    _end(broker, stop)
    config = write_properties(directory / "broker.conf", keys)
    return Written(broker.store, config, rocketmq.version)


def _end(broker: Broker, stop: str) -> None:
    broker.stop(kill=stop == "killed")
    shutil.rmtree(broker.store / "rocksdbstore", ignore_errors=True)


def _send(client: Client, rng: random.Random, count: int, *, since_5: bool) -> None:
    topics = {"Orders": 4, "Payments": 2, "Audit": 1}
    for topic, queues in topics.items():
        client.create_topic(topic, queues)
    if since_5:
        client.create_topic(BATCH_TOPIC, 1, attributes="+queue.type=BatchCQ")
        client.create_topic(COMPACT_TOPIC, 1, attributes="+cleanup.policy=COMPACTION")
    for number in range(count):
        topic = rng.choice(list(topics))
        queue, body = rng.randrange(topics[topic]), rng.randbytes(rng.choice((1, 20, 150, 900)))
        properties = {"KEYS": f"k{number % 50}", "TAGS": rng.choice("ab")}
        match rng.randrange(20):
            case 0:
                properties["DELAY"] = "18"
            case 1:
                properties |= {"INNER_MULTI_DISPATCH": f"%LMQ%light{number % 4}"}
            case 2:
                _transaction(client, topic, body, properties, rng)
                continue
            case 3 if since_5:
                _batch(client, rng)
                continue
            case 4 if since_5:
                topic, queue = COMPACT_TOPIC, 0
        answer = client.put(topic, body, queue, properties=properties)
        assert answer.code == 0, answer


def _transaction(client: Client, topic: str, body: bytes, properties: dict[str, str], rng: random.Random) -> None:
    answer = client.put(topic, body, properties=properties | {"TRAN_MSG": "true", "PGROUP": "P"}, sys_flag=4)
    assert answer.code == 0, answer
    kind = rng.choice((0, 8, 12))  # left open, committed, rolled back
    if kind:
        offset = int(answer.fields["msgId"][-16:], 16)
        client.call(
            37, producerGroup="P", tranStateTableOffset=answer.fields["queueOffset"], commitLogOffset=offset,
            commitOrRollback=kind, fromTransactionCheck=False, msgId="", transactionId=answer.fields.get("transactionId", ""),
        )  # fmt: skip


def _batch(client: Client, rng: random.Random) -> None:
    """One record that contains several messages, in a queue of the type BatchCQ."""
    inner = b""
    count = rng.randrange(2, 6)
    for _ in range(count):
        body = rng.randbytes(40)
        text = f"UNIQ_KEY\x01{rng.randrange(1 << 127):032X}\x02".encode()
        inner += struct.pack(">iiiii", 22 + len(body) + len(text), 0, 0, 0, len(body)) + body
        inner += struct.pack(">h", len(text)) + text
    answer = client.put(BATCH_TOPIC, inner, properties={"INNER_NUM": str(count)}, m=True)
    assert answer.code == 0, answer


# -- damage ------------------------------------------------------------------------------------------------------------

Damage = Callable[[Path, random.Random, Path], None]
"""Damages a store; the last argument is a store of another broker of the same release."""


def files_in(root: Path, *parts: str) -> list[Path]:
    """Returns the files below a directory of a store, by name."""
    return sorted(path for path in root.joinpath(*parts).rglob("*") if path.is_file())


def _segments(root: Path) -> list[Path]:
    return [path for path in files_in(root, "commitlog") if path.name.isdigit()]


def _used(root: Path) -> list[Path]:
    """Returns the segments that begin with a record."""
    return [path for path in _segments(root) if path.read_bytes()[:4] != bytes(4)]


def _write(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def _flip_bits(root: Path, rng: random.Random, _other: Path) -> None:
    for path in rng.sample(_used(root), 2):
        at = rng.randrange(SEGMENT // 2)
        _write(path, at, bytes([path.read_bytes()[at] ^ 1 << rng.randrange(8)]))


def _zero_page(root: Path, rng: random.Random, _other: Path) -> None:
    _write(rng.choice(_used(root)[:-1]), rng.randrange(1, SEGMENT // PAGE) * PAGE, bytes(PAGE))


def _garbage_pages(root: Path, rng: random.Random, _other: Path) -> None:
    for path in rng.sample(_used(root)[:-1], 2):
        _write(path, rng.randrange(SEGMENT // PAGE) * PAGE, rng.randbytes(PAGE))


def _swap_blocks(root: Path, rng: random.Random, _other: Path) -> None:
    path = rng.choice(_used(root)[:-1])
    data = path.read_bytes()
    first, second = sorted(rng.sample(range(1, SEGMENT // PAGE), 2))
    first, second = first * PAGE, second * PAGE
    _write(path, first, data[second : second + PAGE])
    _write(path, second, data[first : first + PAGE])


def _truncate_segment(root: Path, rng: random.Random, _other: Path) -> None:
    os.truncate(rng.choice(_used(root)[:-1]), rng.randrange(1, SEGMENT))


def _truncate_last(root: Path, rng: random.Random, _other: Path) -> None:
    os.truncate(_used(root)[-1], rng.randrange(1, SEGMENT))


def _grow_segment(root: Path, rng: random.Random, _other: Path) -> None:
    with rng.choice(_used(root)[:-1]).open("ab") as file:
        file.write(bytes(PAGE))


def _delete_segment(root: Path, rng: random.Random, _other: Path) -> None:
    rng.choice(_used(root)[1:-1]).unlink()


def _delete_first_segment(root: Path, _rng: random.Random, _other: Path) -> None:
    _used(root)[0].unlink()


def _rename_segments(root: Path, _rng: random.Random, _other: Path) -> None:
    for path in reversed(_segments(root)):
        path.rename(path.with_name(f"{int(path.name) + SEGMENT:020d}"))


def _foreign_segment(root: Path, rng: random.Random, other: Path) -> None:
    path = rng.choice(_used(root)[1:-1])
    shutil.copyfile(other / "commitlog" / path.name, path)


def _foreign_checkpoint(root: Path, _rng: random.Random, other: Path) -> None:
    shutil.copyfile(other / "checkpoint", root / "checkpoint")


def _without_queue(root: Path, rng: random.Random, _other: Path) -> None:
    shutil.rmtree(rng.choice(sorted((root / "consumequeue" / "Orders").iterdir())))


def _without_queues(root: Path, _rng: random.Random, _other: Path) -> None:
    shutil.rmtree(root / "consumequeue")


def _without_light_queues(root: Path, _rng: random.Random, _other: Path) -> None:
    for path in (root / "consumequeue").glob("%LMQ%*"):
        shutil.rmtree(path)


def _without_batch_queue(root: Path, _rng: random.Random, _other: Path) -> None:
    shutil.rmtree(root / "batchconsumequeue" / BATCH_TOPIC)


def _without_batch_records(root: Path, rng: random.Random, other: Path) -> None:
    shutil.rmtree(root / "batchconsumequeue" / BATCH_TOPIC)
    _zero_page(root, rng, other)


def _queue_file_garbage(root: Path, rng: random.Random, _other: Path) -> None:
    path = rng.choice(files_in(root, "consumequeue", "Orders"))
    _write(path, rng.randrange(5) * 20, rng.randbytes(40))


def _queue_file_truncated(root: Path, rng: random.Random, _other: Path) -> None:
    os.truncate(rng.choice(files_in(root, "consumequeue", "Orders")), rng.randrange(QUEUE_FILE))


def _queues_exchanged(root: Path, _rng: random.Random, _other: Path) -> None:
    queues = root / "consumequeue" / "Orders"
    (queues / "0").rename(queues / "x")
    (queues / "1").rename(queues / "0")
    (queues / "x").rename(queues / "1")


def _topic_renamed(root: Path, _rng: random.Random, _other: Path) -> None:
    (root / "consumequeue" / "Payments").rename(root / "consumequeue" / "Payment")


def _without_index(root: Path, _rng: random.Random, _other: Path) -> None:
    shutil.rmtree(root / "index")


def _index_garbage(root: Path, rng: random.Random, _other: Path) -> None:
    path = rng.choice(files_in(root, "index"))
    _write(path, 40 + rng.randrange(400), rng.randbytes(100))


def _without_checkpoint(root: Path, _rng: random.Random, _other: Path) -> None:
    (root / "checkpoint").unlink()


def _without_configuration(root: Path, _rng: random.Random, _other: Path) -> None:
    shutil.rmtree(root / "config")


def _foreign_topics(root: Path, _rng: random.Random, _other: Path) -> None:
    for name in ("topics.json", "topics.json.bak"):
        path = root / "config" / name
        if path.exists():
            document = json.loads(path.read_text("utf-8"))
            document["topicConfigTable"].pop(BATCH_TOPIC, None)
            path.write_text(json.dumps(document), "utf-8")


def _positions_emptied(root: Path, _rng: random.Random, _other: Path) -> None:
    (root / "config" / "consumerOffset.json").write_bytes(b"")
    (root / "config" / "consumerOffset.json.bak").unlink(missing_ok=True)


def _abort_and_zero_page(root: Path, rng: random.Random, other: Path) -> None:
    (root / "abort").touch()
    _zero_page(root, rng, other)


def _nothing(_root: Path, _rng: random.Random, _other: Path) -> None:
    pass


DAMAGES: dict[str, Damage] = {
    "none": _nothing,
    "bits": _flip_bits,
    "zero-page": _zero_page,
    "garbage-pages": _garbage_pages,
    "swapped-blocks": _swap_blocks,
    "truncated-segment": _truncate_segment,
    "truncated-last": _truncate_last,
    "grown-segment": _grow_segment,
    "missing-segment": _delete_segment,
    "missing-first": _delete_first_segment,
    "renamed-segments": _rename_segments,
    "foreign-segment": _foreign_segment,
    "foreign-checkpoint": _foreign_checkpoint,
    "missing-queue": _without_queue,
    "missing-queues": _without_queues,
    "missing-light-queues": _without_light_queues,
    "missing-batch-queue": _without_batch_queue,
    "missing-batch-records": _without_batch_records,
    "queue-garbage": _queue_file_garbage,
    "queue-truncated": _queue_file_truncated,
    "queues-exchanged": _queues_exchanged,
    "topic-renamed": _topic_renamed,
    "missing-index": _without_index,
    "index-garbage": _index_garbage,
    "missing-checkpoint": _without_checkpoint,
    "missing-configuration": _without_configuration,
    "foreign-topics": _foreign_topics,
    "positions-emptied": _positions_emptied,
    "abort-and-zero-page": _abort_and_zero_page,
}
SINCE_5_ONLY = {"missing-batch-queue", "missing-batch-records", "foreign-topics"}


# -- judging -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Served:
    """What the real store serves of a copy of a store.

    Attributes:
        starts: it loads the store.
        messages: messages that a consumer gets from their own queues.
        bytes_of: the record of each, read from the files.
    """

    starts: bool
    messages: frozenset[Identity]
    bytes_of: dict[Identity, bytes]


def served(rocketmq: RocketMQ, written: Written, root: Path, work: Path) -> Served:
    """Asks the real store about a copy of `root`; light queues count by their own names."""
    found = rocketmq.answers(root, written.config, work=work)
    records = {row["physicalOffset"]: row for row in found["messages"]}
    segments = {int(path.name): path for path in _segments(work / "store")}
    data: dict[Identity, bytes] = {}
    for queue in found["queues"]:
        for offset in queue["served"]:
            row, base = records.get(offset), max((base for base in segments if base <= offset), default=None)
            if row is None or base is None:
                continue
            with segments[base].open("rb") as file:
                file.seek(offset - base)
                record = file.read(row["storeSize"])
            key = row["properties"].get("UNIQ_KEY") or record.hex()
            data[queue["topic"], queue["queueId"], key] = record
    shutil.rmtree(work)
    return Served(found["opened"][0]["loaded"], frozenset(data), data)


@dataclass(frozen=True)
class Row:
    """What became of one damaged store.

    Attributes:
        id: kind of damage, release, how the broker ended.
        intact: messages that the broker served before, and whose records are still complete somewhere in the files.
        alone: of these, how many the broker serves of the damaged store itself.
        advised, salvaged: of these, how many it serves after the printed advice, and of the store that `salvage` writes; -1 if there is none.
        worse: messages that the broker alone serves, but not after the advice or after salvage.
        state: what `verify` says of the damaged store.
        commands: what was run, in order.
        ended: why the advice ended: done, cycle, refused, too long, or no command.
        problems: violations, in words.
    """

    id: str
    intact: int
    alone: int
    advised: int
    salvaged: int
    worse: int
    state: str
    commands: tuple[str, ...]
    ended: str
    problems: tuple[str, ...]


@dataclass(frozen=True)
class Run:
    """How a command ended."""

    code: int
    document: dict[str, Any]
    errors: str


def run_command(line: str, place: Path) -> Run:
    """Runs a command as it was printed, with JSON output, in a directory."""
    words = shlex.split(line)
    assert words[0] == "mqtool", line
    output = [] if "--format" in words else ["--format", "json"]
    done = subprocess.run(
        [sys.executable, "-m", "mqtool", *words[1:], *output],
        cwd=place,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode not in (70, 74), (line, done.stderr)
    try:
        document = json.loads(done.stdout)
    except ValueError:
        document = {}
    return Run(done.returncode, document if isinstance(document, dict) else {}, done.stderr)


def follow_advice(root: Path, config: Path, place: Path) -> tuple[Path, str, list[str], str]:
    """Runs what `verify --config` prints to type next, and what that prints, until a store has no next step.

    Returns:
        The store that the advice ends with, what `verify` said at first, the commands, and why it ended.
    """
    first = ""
    commands: list[str] = []
    line: str | None = f"mqtool verify {root} --config {config}"
    while line is not None:
        if line in commands and not line.startswith("mqtool verify"):
            return root, first, commands, "cycle"
        changes = [one for one in commands if not one.startswith("mqtool verify")]
        if len(changes) > COMMANDS:
            return root, first, commands, "too long"
        commands.append(line)
        done = run_command(line, place)
        is_check = line.startswith("mqtool verify")
        is_dry = done.code == 4 and "add --yes" in done.errors  # a terminal would be asked
        if is_check:
            first = first or str(done.document.get("status"))
        elif done.code not in (0, 1) and not is_dry:
            return root, first, commands, f"refused: {done.errors.strip()[-300:]}"
        made = [place / word for word in shlex.split(line)[1:] if (place / word / "commitlog").is_dir()]
        if not is_check and made and made[-1] != root:
            root = made[-1]
        steps = done.document.get("next_steps") or [done.document.get("next_step")]
        steps = [step for step in steps if step and "undo " not in step and "explain-start" not in step]
        if not is_check and not is_dry and not any("apply" in step for step in steps):
            steps = [f"mqtool verify {root} --config {config}"]
        if is_check and not steps:
            break
        line = steps[0]
    return root, first, commands, "done"


@dataclass(frozen=True)
class Trial:
    """A store to be damaged.

    Attributes:
        rocketmq: the release that wrote it, and that judges.
        seed: of its messages and its damage.
        written: the store.
        other: a store of another broker of the same release.
        before: what the real store serves of it undamaged.
    """

    rocketmq: RocketMQ
    seed: int
    written: Written
    other: Written
    before: Served


def prepare(
    rocketmq: RocketMQ, directory: Path, seed: int, stop: str, messages: int = 700, *, with_other: bool = True
) -> Trial:
    """Has a real broker write the stores of a trial; `with_other`, also the one that some kinds of damage take parts from."""
    written = write_store(rocketmq, directory / "one", seed, stop, messages)
    other = write_store(rocketmq, directory / "other", seed + 1, stop, messages) if with_other else written
    return Trial(rocketmq, seed, written, other, served(rocketmq, written, written.root, directory / "before"))


def judge(trial: Trial, kind: str, scratch: Path) -> Row:
    """Damages a copy of a store, repairs it by the printed advice and by salvage, and asks the real store each time."""
    rocketmq, written = trial.rocketmq, trial.written
    scratch.mkdir()
    damaged = sparse_copy(written.root, scratch / "damaged")
    DAMAGES[kind](damaged, random.Random(f"{trial.seed} {kind}"), trial.other.root)
    data = b"".join(path.read_bytes() for path in _segments(damaged))
    intact = {identity for identity, record in trial.before.bytes_of.items() if record in data}
    alone = served(rocketmq, written, damaged, scratch / "alone").messages & intact
    digest = tree_digest(damaged)

    place = scratch / "place"
    place.mkdir()
    root = sparse_copy(damaged, place / "store")
    end, state, commands, ended = follow_advice(root, written.config, place)
    advised = served(rocketmq, written, end, scratch / "advised").messages
    run_command(f"mqtool salvage {damaged} -o {scratch / 'salvaged'} --config {written.config}", place)
    has_new = (scratch / "salvaged").is_dir()
    salvaged = served(rocketmq, written, scratch / "salvaged", scratch / "judged").messages if has_new else frozenset()

    problems = []
    if tree_digest(damaged) != digest:
        problems.append("salvage changed its source")
    if state == "clean" and alone != intact:
        problems.append(f"false clean: {len(intact - alone)} intact messages are not served")
    if ended in ("cycle", "too long") or ended.startswith("refused"):
        problems.append(f"advice: {ended}")
    worse = alone - advised | (alone - salvaged if has_new else frozenset())
    if worse:
        problems.append(
            f"{len(worse)} messages that the broker alone serves are not served afterwards, such as {sorted(worse)[:3]}"
        )
    if intact - advised:
        problems.append(
            f"{len(intact - advised)} intact messages are not served after the advice, such as {sorted(intact - advised)[:3]}"
        )
    if has_new and intact - salvaged:
        problems.append(
            f"{len(intact - salvaged)} intact messages are not served after salvage, such as {sorted(intact - salvaged)[:3]}"
        )
    return Row(
        "", len(intact), len(alone), len(advised & intact), len(salvaged & intact) if has_new else -1, len(worse),
        state, tuple(commands), ended, tuple(problems),
    )  # fmt: skip


def kinds_of(version: str) -> list[str]:
    """Returns the kinds of damage that a release's store can have."""
    return [kind for kind in DAMAGES if version >= "5" or kind not in SINCE_5_ONLY]


def trials(seed: int, parts: Sequence[str], *, messages: int = 700) -> Iterator[Row]:
    """Tries all kinds whose ids contain one of some words, on fresh stores of both releases."""
    for version in VERSIONS:
        for stop in STOPS:
            names = {kind: f"{kind}@{version}-{stop}" for kind in kinds_of(version)}
            chosen = [kind for kind, name in names.items() if not parts or any(part in name for part in parts)]
            if not chosen:
                continue
            real = release(version)
            with contextlib.closing(real), tempfile.TemporaryDirectory(dir=MEMORY) as name:
                scratch = Path(name)
                trial = prepare(real, scratch, seed, stop, messages)
                for kind in chosen:
                    row = judge(trial, kind, scratch / kind)
                    yield Row(**asdict(row) | {"id": names[kind]})
                    shutil.rmtree(scratch / kind)


def main() -> int:
    """Writes every row as JSON, prints violations and the sums."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("parts", nargs="*")
    options = parser.parse_args()
    rows = []
    with options.target.open("w", encoding="utf-8") as out:
        for row in trials(options.seed, options.parts):
            rows.append(row)
            out.write(json.dumps(asdict(row)) + "\n")
            out.flush()
            sys.stdout.write(
                f"{row.id}: intact {row.intact}, alone {row.alone}, advised {row.advised}, salvaged {row.salvaged} {'; '.join(row.problems)}\n"
            )
            sys.stdout.flush()
    sums = {
        name: sum(max(0, getattr(row, name)) for row in rows)
        for name in ("intact", "alone", "advised", "salvaged", "worse")
    }
    sys.stdout.write(f"{len(rows)} stores, {sums}, violations {sum(bool(row.problems) for row in rows)}\n")
    return 1 if any(row.problems for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
