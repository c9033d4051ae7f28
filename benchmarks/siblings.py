"""Scanning the sibling formats: `python benchmarks/siblings.py [--size 1024] [--messages N] [--rounds N]`.

Stores of EQueue, of EventStore (TFChunk) and of a DLedger log are written with the same number of messages and scanned.
Prints a JSON line for each job: messages/s, bytes/s, and the ratio to a pass of zlib.crc32 over the same files in the
same round; medians of all rounds. Everything runs in one thread.
"""

import argparse
import hashlib
import json
import os
import statistics
import sys
import tempfile
import time
import uuid
import zlib
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mqtool.formats import commit_log, dledger, equeue, tfchunk
from mqtool.formats.tfchunk import Prepare
from mqtool.records.frames import Frames
from mqtool.siblings.arrow import batches
from mqtool.siblings.equeue.listing import EQueueSettings
from mqtool.siblings.equeue.store import EQueueStore
from mqtool.siblings.equeue.writer import EQueueWriter
from mqtool.siblings.registry import recognise
from mqtool.siblings.tfchunk.store import TFChunkDb
from mqtool.store import open_store
from mqtool.verify.store import verify
from tests.support.big_store import write_big_store

CHUNK = 64 << 20
WINDOW = 8 << 20
FIRST_TICKS = 638_000_000_000_000_000
Job = Callable[[Path], object]


def write_equeue(root: Path, count: int, size: int) -> list[Path]:
    body = os.urandom(64) * (size // 64 + 1)
    with EQueueWriter(root, EQueueSettings(message_chunk_size=CHUNK)) as writer:
        for number in range(count):
            writer.put(f"topic{number % 16}", number % 4, body[:size], tag=f"tag{number % 5}")
    return sorted((root / equeue.MESSAGE_CHUNKS).iterdir())


def write_tfchunk(root: Path, count: int, size: int) -> list[Path]:
    """Writes completed chunks; the MD5 in their footers is the right one."""
    root.mkdir()
    body, done, number = os.urandom(64) * (size // 64 + 1), 0, 0
    while done < count:
        start, parts, used = number * CHUNK, [], 0
        while done < count:
            record = tfchunk.build_record(
                Prepare(
                    0,
                    1,
                    start + used,
                    1,
                    start + used,
                    0,
                    done,
                    b"stream-%d" % (done % 16),
                    uuid.uuid4().bytes,
                    uuid.uuid4().bytes,
                    FIRST_TICKS + done,
                    b"event",
                    body[:size],
                    b"{}",
                )
            )
            if used + len(record) + 8 > CHUNK:
                break
            parts.append(equeue.build_frame(record))
            used += len(record) + 8
            done += 1
        header = tfchunk.HEADER.build(tfchunk.ChunkHeader(2, 3, CHUNK, number, number, 0, bytes(16), 0, 0, bytes(92)))
        footer = tfchunk.ChunkFooter(1, used, used, 0, b"", bytes(16))
        whole = header + b"".join(parts)
        whole = whole.ljust(tfchunk.file_size(tfchunk.HEADER.parse(header), footer) - tfchunk.FOOTER_SIZE, b"\0")
        whole += tfchunk.build_footer(footer)[:-16]
        digest = hashlib.md5(whole, usedforsecurity=False).digest()
        (root / f"chunk-{number:06}.000000").write_bytes(whole + digest)
        number += 1
    for name, value in (("writer", start + used), ("chaser", start + used), ("epoch", -1), ("truncate", -1)):
        (root / f"{name}.chk").write_bytes(tfchunk.CHECKPOINT.build(tfchunk.Checkpoint(value)))
    return sorted(root.glob("chunk-*"))


def write_dledger(root: Path, count: int, size: int) -> list[Path]:
    """Puts the records of an ordinary log behind entry headers."""
    data = root / "dledger-n0" / dledger.DATA
    data.mkdir(parents=True)
    at, index, parts = 0, 0, []
    place = commit_log.field_offset("physical_offset")
    with (
        tempfile.TemporaryDirectory(dir=root.parent) as folder,
        open_store(write_big_store(Path(folder) / "plain", count, size=size)) as plain,
    ):
        for item in plain.commit_log.walk():
            if not isinstance(item, Frames):
                continue
            for start, length in zip(item.positions.tolist(), item.sizes.tolist(), strict=True):
                whole = length + dledger.ENTRY_HEADER_SIZE
                if at % CHUNK + whole + dledger.BLANK_ENTRY_SIZE > CHUNK:
                    left = CHUNK - at % CHUNK
                    parts.append(dledger.BLANK_ENTRY.build(dledger.BlankEntry(-1, left)).ljust(left, b"\0"))
                    _write_data(data, at // CHUNK, parts)
                    at, parts = at + left, []
                record = bytearray(item.view[start : start + length])
                record[place : place + 8] = (at + dledger.ENTRY_HEADER_SIZE).to_bytes(8, "big")
                header = dledger.EntryHeader(1, whole, index, 0, at, 0, 0, 0, length)
                parts += (dledger.ENTRY.build(header), record)
                at, index = at + whole, index + 1
    _write_data(data, at // CHUNK, parts)
    return sorted(data.iterdir())


def _write_data(data: Path, number: int, parts: list[bytes]) -> None:
    with (data / f"{number * CHUNK:020}").open("wb") as file:
        file.writelines(parts)
        file.truncate(CHUNK)


def runs(opener: Callable[[Path], object]) -> Job:
    def job(root: Path) -> None:
        with opener(root) as store:
            assert all(hasattr(item, "run") for item in store.runs())

    return job


def columns(root: Path) -> None:
    with recognise(root).open(root) as opened:
        assert sum(batch.num_rows for batch in batches(opened))


def findings(root: Path) -> None:
    with recognise(root).open(root) as opened:
        assert list(opened.verify()) == []


def ledger_frames(root: Path) -> None:
    with open_store(root) as store:
        assert all(isinstance(item, Frames) for item in store.commit_log.walk())


def ledger_columns(root: Path) -> None:
    with open_store(root) as store:
        assert sum(batch.num_rows for batch in store.batches())


def ledger_findings(root: Path) -> None:
    with open_store(root) as store:
        verify(store)


FORMATS: dict[str, tuple[Callable[[Path, int, int], list[Path]], dict[str, Job]]] = {
    "equeue": (write_equeue, {"frames": runs(EQueueStore), "all columns": columns, "verify": findings}),
    "tfchunk": (write_tfchunk, {"frames": runs(TFChunkDb), "all columns": columns, "verify": findings}),
    "dledger": (write_dledger, {"frames": ledger_frames, "all columns": ledger_columns, "verify": ledger_findings}),
}


def crc_pass(files: list[Path]) -> None:
    for path in files:
        with path.open("rb") as file:
            while data := file.read(WINDOW):
                zlib.crc32(data)


def timed(job: Callable[[], object]) -> float:
    start = time.perf_counter()
    job()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1024, help="bytes of a body")
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=FORMATS)
    args = parser.parse_args()
    for name, (write, jobs) in FORMATS.items():
        if args.only not in (None, name):
            continue
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder) / "store"
            files = write(root, args.messages, args.size)
            size = sum(path.stat().st_size for path in files)
            limits, taken = [], {job: [] for job in jobs}
            for _ in range(args.rounds + 1):  # the first round warms up
                limits.append(timed(lambda files=files: crc_pass(files)))
                for job, run in jobs.items():
                    taken[job].append(timed(lambda run=run, root=root: run(root)))
        for job, seconds in {"zlib.crc32 of whole files": limits, **taken}.items():
            best = statistics.median(seconds[1:])
            ratio = statistics.median(limit / one for one, limit in zip(seconds[1:], limits[1:], strict=True))
            print(
                json.dumps(
                    {
                        "format": name,
                        "job": job,
                        "body": args.size,
                        "messages_s": round(args.messages / best),
                        "bytes_s": round(size / best),
                        "of_zlib_pass": round(ratio, 2),
                    }
                ),
                flush=True,
            )


if __name__ == "__main__":
    main()
