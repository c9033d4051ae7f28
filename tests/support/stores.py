"""The stores in `fixtures/`: where they are, what the broker answered, copies to write to, digests of a tree."""

import contextlib
import errno
import functools
import hashlib
import io
import json
import os
import re
import shutil
import stat
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zstandard

from mqtool.formats.release import release_of
from mqtool.store.config import broker_config

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
CHUNK = 1 << 16
ZEROS = bytes(CHUNK)
OTHER_SYSTEMS = ("equeue-", "tfchunk")
"""Beginnings of the names of fixtures that are no RocketMQ stores."""


@dataclass(frozen=True)
class StoreFixture:
    """One store directory in `fixtures/`.

    Attributes:
        name: what `copy_store` takes: `orders-5.5.0`, or with the node where there are several: `ha-5.5.0/store-slave`.
        directory: the store itself; None where it is packed (`default-sizes`): use `copy_store`.
        config: broker.conf of this store.
        version: release that wrote it.
        answers: kinds of answers beside it: `messages`, `queues`, `gets`, … (see fixtures/README.md).
        clean_stop: the broker left no abort file.
    """

    name: str
    directory: Path | None
    config: Path
    version: str
    answers: frozenset[str]
    clean_stop: bool

    def __str__(self) -> str:
        return self.name


def fixture(path: str) -> Path:
    """The file or directory of this path below `fixtures/`, for example `orders-5.5.0/store/checkpoint`."""
    found = FIXTURES / path
    assert found.exists(), f"no such fixture: {path}"
    return found


SOON_AFTER = 1_795_564_800_000
"""2026-11-25, ms since the epoch: soon after the newest fixture was written, and before timers are skipped."""


def read_keys(name: str) -> dict[str, str]:
    """The keys of a store's broker.conf that its broker reads: some have keys of later releases too."""
    store = store_fixture(name)
    config = broker_config.load(store.config)
    unread = {one.key for one in config.unread_keys([release_of(store.version)])}
    return {key: value for key, value in config.values.items() if key not in unread}


def shape_keys(config: Path) -> dict[str, str]:
    """The broker keys in a broker.conf that shape files or switch features: no names, addresses, paths."""
    pairs = (line.partition("=") for line in config.read_text("utf-8").splitlines() if not line.startswith("#"))
    machine = ("broker", "namesrvAddr", "listenPort", "haListenPort", "storePath", "readOnlyCommitLog", "dLeger")
    return {key: value for key, _, value in pairs if key and not key.startswith(machine)}


def answered(*kinds: str) -> list[StoreFixture]:
    """The stores that have all these kinds of answers; `answered("gets", "queries")` are those with every kind."""
    return [store for store in STORES if store.answers.issuperset(kinds)]


def store_fixture(name: str) -> StoreFixture:
    """The entry of `STORES` with this name."""
    return next(store for store in STORES if store.name == name)


def answers(name: str, kind: str) -> list[dict[str, Any]]:
    """What the broker answered: the lines of `answers/KIND.jsonl`."""
    return read_lines(fixture(name.partition("/")[0]) / "answers" / f"{kind}.jsonl")


def acks(name: str) -> list[dict[str, Any]]:
    """What the sender of each message was told."""
    return read_lines(fixture(name.partition("/")[0]) / "acks.jsonl")


def summary(name: str) -> dict[str, Any]:
    """The object in `answers/summary.json`."""
    return dict(json.loads((fixture(name) / "answers" / "summary.json").read_text("utf-8")))


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSON Lines file."""
    with path.open("rb") as lines:
        return [json.loads(line) for line in lines]


def sizes_of(name: str) -> str:
    """The keys of a broker.conf that state how large the files of a store are, as lines."""
    lines = fixture(f"{name}/broker.conf").read_text("utf-8").splitlines()
    return "".join(f"{line}\n" for line in lines if re.match(r"mapp\w+FileSize|max(HashSlotNum|IndexNum)", line))


def copy_store(name: str, tmp_path: Path) -> Path:
    """A writable copy of a store below `tmp_path`, big files unpacked sparsely, empty directories made again.

    Returns:
        The root of the copy: `tmp_path/store`, or `tmp_path/store-NODE`.
    """
    source = store_fixture(name)
    if source.directory is None:
        packed = zstandard.ZstdDecompressor().stream_reader(fixture(f"{name}/store.tar.zst").read_bytes()).read()
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(tmp_path, filter="data")
        return tmp_path / "store"
    return copy_tree(source.directory, tmp_path / source.directory.name)


def copy_tree(source: Path, target: Path) -> Path:
    """A writable copy of a directory below `fixtures/`; see `copy_store`."""
    shutil.copytree(source, target)
    for path in sorted(target.rglob("*")):
        path.chmod(path.stat().st_mode | stat.S_IWUSR)
        if path.suffix == ".zst":
            unpack(path, path.with_suffix(""))
            path.unlink()
    for line in fixture("EMPTY_DIRECTORIES").read_text("utf-8").splitlines():
        with contextlib.suppress(ValueError):  # of another store
            (target / (FIXTURES / line).relative_to(source)).mkdir()
    return target


def unpack(packed: Path, target: Path) -> None:
    """Decompress a zstd file, leaving holes where it is zero."""
    size, blocks = _unpacked(packed.read_bytes())
    with target.open("wb") as sink:
        for offset, block in blocks:
            sink.seek(offset)
            sink.write(block)
        sink.truncate(size)


@functools.cache
def _unpacked(packed: bytes) -> tuple[int, list[tuple[int, bytes]]]:
    """The size unpacked, and the blocks that are not zero with their offsets: tests unpack few files, very often."""
    size, blocks = 0, []
    reader = zstandard.ZstdDecompressor().stream_reader(packed)
    while chunk := reader.read(CHUNK):
        if chunk != ZEROS[: len(chunk)]:
            blocks.append((size, chunk))
        size += len(chunk)
    return size, blocks


def tree_digest(path: Path) -> str:
    """SHA-256 over names, modes, sizes, modification times and bytes of everything below `path`.

    Two equal digests around a call mean that it wrote no byte, and made and removed no file.
    """
    digest = hashlib.sha256()
    for entry in [path, *sorted(path.rglob("*"))]:
        status = entry.lstat()
        size = status.st_size if stat.S_ISREG(status.st_mode) else 0
        digest.update(repr((entry.relative_to(path).as_posix(), status.st_mode, size, status.st_mtime_ns)).encode())
        if entry.is_symlink():
            digest.update(str(entry.readlink()).encode())
        elif stat.S_ISREG(status.st_mode):
            with entry.open("rb") as file:
                for block in _blocks(file.fileno()):
                    digest.update(block)
    return digest.hexdigest()


def _blocks(descriptor: int) -> Iterator[bytes]:
    """Yields the number of each block of a file that is not zero, and its bytes; holes are not read."""
    following = end = 0
    while True:
        try:
            start = os.lseek(descriptor, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # there is no data after `end`
                return
            raise
        end = os.lseek(descriptor, start, os.SEEK_HOLE)
        for block in range(max(following, start // CHUNK), -(-end // CHUNK)):
            following = block + 1
            data = os.pread(descriptor, CHUNK, block * CHUNK)
            if data != ZEROS[: len(data)]:
                yield block.to_bytes(8, "big")
                yield data


def _find_stores() -> tuple[StoreFixture, ...]:
    found = []
    homes = [path for path in FIXTURES.iterdir() if path.is_dir() and path.name != "damage"]
    for home in sorted(path for path in homes if not path.name.startswith(OTHER_SYSTEMS)):
        kinds = frozenset(file.stem for file in (home / "answers").glob("*.jsonl"))
        version = "4.9.7" if home.name.endswith("-4.9.7") else "5.5.0"
        directories = sorted(path for path in home.glob("store*") if path.is_dir())
        for directory in directories:
            several = len(directories) > 1
            name = f"{home.name}/{directory.name}" if several else home.name
            config = home / (f"broker-{directory.name}.conf" if several else "broker.conf")
            clean = not (directory / "abort").exists()
            found.append(StoreFixture(name, directory, config, version, kinds, clean))
        if not directories:
            found.append(StoreFixture(home.name, None, home / "broker.conf", version, kinds, clean_stop=True))
    return tuple(found)


STORES: tuple[StoreFixture, ...] = _find_stores()
