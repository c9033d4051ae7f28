"""Damaged stores in DLedger mode: each made from a fixture by one function, for the real broker to be started on.

What RocketMQ made of each is recorded in `fixtures/damage/dledger-starts`; `answer` asks it again.
"""

import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from mqtool.formats.checkpoint import CHECKPOINT
from mqtool.formats.commit_log import build_blank, build_record, field_offset, frame_size, parse_record
from mqtool.recovery import Outcome
from tests.support.rocketmq import RocketMQ, free_ports
from tests.support.stores import copy_store, fixture, read_lines, shape_keys, store_fixture

HEADER = struct.Struct(">iiqqqiiii")
UNIT = 32
SIZE = 65536
ANSWERS = "damage/dledger-starts"
BASES = ("dledger", "dledger-mixed", "hosts")
"""A store of DLedger alone, one that was an ordinary one first, and an ordinary one that never had it."""


class Ledger:
    """A store to be damaged.

    Attributes:
        root: of the store.
        entries: position, size, index and term of each entry.
    """

    def __init__(self, root: Path, name: str) -> None:
        self.root = root
        self.entries: list[tuple[int, int, int, int]] = []
        if (root / "dledger-n0").exists():
            lines = read_lines(fixture(name) / "answers" / "entries.jsonl")
            self.entries = [(e["pos"], e["size"], e["index"], e["term"]) for e in lines if e["kind"] == "entry"]

    @property
    def data(self) -> list[Path]:
        """Data files in order."""
        return sorted((self.root / "dledger-n0" / "data").iterdir())

    @property
    def index(self) -> Path:
        """The index file."""
        return next((self.root / "dledger-n0" / "index").iterdir())

    def write(self, position: int, data: bytes | bytearray) -> None:
        """Overwrites bytes of the log."""
        path = next(path for path in self.data if int(path.name) <= position < int(path.name) + SIZE)
        overwrite(path, position - int(path.name), data)

    def of_file(self, number: int) -> list[tuple[int, int, int, int]]:
        """The entries of a data file; -1 is the last one."""
        base = int(self.data[number].name)
        return [entry for entry in self.entries if base <= entry[0] < base + SIZE]

    def middle(self, number: int) -> tuple[int, int, int, int]:
        """The entry in the middle of a data file."""
        found = self.of_file(number)
        return found[len(found) // 2]


def overwrite(path: Path, position: int, data: bytes | bytearray) -> None:
    """Overwrites bytes of a file."""
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def _abort(store: Ledger) -> None:
    (store.root / "abort").touch()


def _field(number: int, name: int, value: int) -> Callable[[Ledger], None]:
    """Writes a field of the header of the entry in the middle of a file."""

    def damage(store: Ledger) -> None:
        entry = store.middle(number)
        fields = [1, entry[1], entry[2], entry[3], entry[0], 0, 0, 0, entry[1] - HEADER.size]
        fields[name] = value if name != 2 else fields[2] + value
        store.write(entry[0], HEADER.pack(*fields))

    return damage


def _body(number: int) -> Callable[[Ledger], None]:
    def damage(store: Ledger) -> None:
        position, size, _, _ = store.middle(number)
        store.write(position + HEADER.size + (size - HEADER.size) // 2, b"\xa5\x5a\xa5\x5a")

    return damage


def _too_large(store: Ledger) -> None:
    position, _, index, term = store.middle(-1)
    store.write(position, HEADER.pack(1, SIZE + 1, index, term, position, 0, 0, 0, SIZE + 1 - HEADER.size))


def _rest(count: int) -> Callable[[Ledger], None]:
    """The last entry of the last file but one ends `count` bytes before the file does, and no blank entry follows."""

    def damage(store: Ledger) -> None:
        position, _, index, term = store.of_file(-2)[-1]
        size = SIZE - position % SIZE - count
        store.write(position, HEADER.pack(1, size, index, term, position, 0, 0, 0, size - HEADER.size))
        store.write(position + size, b"\5" * count)

    return damage


def _negative_numbers(store: Ledger) -> None:
    for number, (position, size, _, term) in enumerate(store.entries[:4], -2):
        store.write(position, HEADER.pack(1, size, number, term, position, 0, 0, 0, size - HEADER.size))


def _large_record(store: Ledger) -> None:
    store.write(store.middle(-1)[0] + HEADER.size, b"\x30\0\0\0")


def _bare_record(store: Ledger) -> None:
    """A record of the first file has no header of an entry."""
    position, size, _, _ = store.middle(0)
    record = bytearray(store.data[0].read_bytes()[position + HEADER.size : position + size])
    struct.pack_into(">q", record, field_offset("physical_offset"), position)
    store.write(position, record + bytes(HEADER.size))


def _record_magic(store: Ledger) -> None:
    store.write(store.middle(-1)[0] + HEADER.size + 4, b"\1\2\3\4")


def _torn(store: Ledger) -> None:
    position, size, _, _ = store.entries[-1]
    store.write(position + size // 2, bytes(size - size // 2))


def _no_last_header(store: Ledger) -> None:
    store.write(store.entries[-1][0], bytes(HEADER.size))


def _zeros(number: int) -> Callable[[Ledger], None]:
    def damage(store: Ledger) -> None:
        position, size, _, _ = store.middle(number)
        store.write(position, bytes(size))

    return damage


def _no_blank(store: Ledger) -> None:
    last = store.of_file(0)[-1]
    store.write(last[0] + last[1], b"\0\0\0\5")


def _remove(*names: str) -> Callable[[Ledger], None]:
    def damage(store: Ledger) -> None:
        for name in names:
            path = store.root / name
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()

    return damage


def _remove_data(number: int) -> Callable[[Ledger], None]:
    return lambda store: store.data[number].unlink()


def _short_data(store: Ledger) -> None:
    with store.data[-1].open("r+b") as file:
        file.truncate(SIZE - 1)


def _short_index(store: Ledger) -> None:
    with store.index.open("r+b") as file:
        file.truncate(UNIT * 1000)


def _stray(name: str, size: int) -> Callable[[Ledger], None]:
    def damage(store: Ledger) -> None:
        (store.root / "dledger-n0" / "data" / name).write_bytes(bytes(size))

    return damage


def _unit(store: Ledger) -> None:
    overwrite(store.index, UNIT * store.middle(-1)[2] + 4, b"\1\1\1\1\1\1\1\1")


def _first_unit(store: Ledger) -> None:
    overwrite(store.index, UNIT * store.of_file(0)[0][2], bytes(UNIT))


def _ledger_checkpoint(text: str) -> Callable[[Ledger], None]:
    def damage(store: Ledger) -> None:
        (store.root / "dledger-n0" / "checkpoint").write_text(text)

    return damage


def _short_queue(store: Ledger) -> None:
    """The last units of the largest queue were never written."""
    path = max((p for p in (store.root / "consumequeue").rglob("0*") if p.is_file()), key=_used)
    overwrite(path, _used(path) - 100, bytes(100))


def _used(path: Path) -> int:
    """Bytes of whole units at the front of a queue's first file; only first files count."""
    return len(path.read_bytes().rstrip(b"\0")) // 20 * 20 + 20 if int(path.name) == 0 else 0


def _fourth_file(store: Ledger) -> None:
    """Fills the last file up, and has another one follow with twenty entries again."""
    again = store.of_file(-1)[:20]
    last, number, term = store.data[-1], store.entries[-1][2], store.entries[-1][3]
    copies = last.read_bytes()
    end = sum(store.entries[-1][:2])
    store.write(end, struct.pack(">ii", -1, SIZE - end % SIZE))
    position = int(last.name) + SIZE
    last.with_name(f"{position:020}").write_bytes(bytes(SIZE))
    for before, size, _, _ in again:
        number += 1
        entry = bytearray(copies[before % SIZE : before % SIZE + size])
        HEADER.pack_into(entry, 0, 1, size, number, term, position, 0, 0, 0, size - HEADER.size)
        struct.pack_into(">q", entry, HEADER.size + field_offset("physical_offset"), position + HEADER.size)
        store.write(position, entry)
        overwrite(store.index, UNIT * number, struct.pack(">iqiqq", 1, position, size, number, term))
        store.entries.append((position, size, number, term))
        position += size


def _unit_of(file: int) -> Callable[[Ledger], None]:
    return lambda store: overwrite(store.index, UNIT * store.of_file(file)[0][2], bytes(UNIT))


def _first_entry_of(file: int) -> Callable[[Ledger], None]:
    return lambda store: store.write(store.of_file(file)[0][0], b"\0\0\0\0")


def _queues_reach_far(store: Ledger) -> None:
    """The checkpoint says that the queues reach beyond the log."""
    overwrite(store.root / "checkpoint", CHECKPOINT.offset("logics_physical_offset"), (1 << 40).to_bytes(8, "big"))


def _blank_end(store: Ledger) -> None:
    """A blank record ends the last segment of the ordinary log."""
    path = max((store.root / "commitlog").iterdir())
    end = len(path.read_bytes().rstrip(b"\0"))
    overwrite(path, end, build_blank(path.stat().st_size - end))


def _full_end(store: Ledger) -> None:
    """The last record of the ordinary log ends with its segment."""
    path = max((store.root / "commitlog").iterdir())
    data = path.read_bytes()
    starts = [0]
    while size := frame_size(data, starts[-1], len(data) - starts[-1]):
        starts.append(starts[-1] + size)
    last, rest = parse_record(data, starts[-2]), len(data) - starts[-1]
    made = replace(
        last,
        total_size=last.total_size + rest,
        properties_length=last.properties_length + rest,
        properties=last.properties + b"x" * rest,
    )
    overwrite(path, starts[-2], build_record(made))


def _both(*parts: Callable[[Ledger], None]) -> Callable[[Ledger], None]:
    def damage(store: Ledger) -> None:
        for part in parts:
            part(store)

    return damage


def _healthy(_: Ledger) -> None:
    pass


_EVERYWHERE: dict[str, Callable[[Ledger], None]] = {"healthy": _healthy, "abort": _abort}

_LEDGER: dict[str, Callable[[Ledger], None]] = {
    **_EVERYWHERE,
    "entry-magic": _field(-1, 0, 7),
    "entry-size": _field(-1, 1, 100),
    "entry-index": _field(-1, 2, 5),
    "entry-term-higher": _field(-1, 3, 9),
    "entry-term-lower": _field(-1, 3, -3),
    "entry-position": _field(-1, 4, 5),
    "entry-body-length": _field(-1, 8, 12),
    "entry-too-large": _too_large,
    "entry-before-4-bytes": _rest(4),
    "entry-before-20-bytes": _rest(20),
    "entry-negative-numbers": _negative_numbers,
    "entry-crc-fields": _field(-1, 7, 99),
    "entry-position-in-first": _field(0, 4, 5),
    "entry-index-in-last-but-one": _field(-2, 2, 5),
    "body": _body(-1),
    "body-abort": _both(_body(-1), _abort),
    "body-in-first-abort": _both(_body(0), _abort),
    "record-magic": _record_magic,
    "record-magic-abort": _both(_record_magic, _abort),
    "record-magic-no-queues": _both(_record_magic, _remove("consumequeue")),
    "record-size": _large_record,
    "record-size-abort": _both(_large_record, _abort),
    "record-size-no-queues": _both(_large_record, _remove("consumequeue")),
    "record-bare-no-queues-abort": _both(_bare_record, _remove("consumequeue"), _abort),
    "torn": _torn,
    "torn-abort": _both(_torn, _abort),
    "last-header": _no_last_header,
    "zeros-in-first": _zeros(0),
    "zeros-in-last-but-one": _zeros(-2),
    "no-blank": _no_blank,
    "no-data": _remove("dledger-n0/data"),
    "no-first-data": _remove_data(0),
    "no-last-data": _remove_data(-1),
    "short-data": _short_data,
    "short-index": _short_index,
    "no-index": _remove("dledger-n0/index"),
    "no-index-no-first-data": _both(_remove("dledger-n0/index"), _remove_data(0)),
    "no-index-abort": _both(_remove("dledger-n0/index"), _abort),
    "unit": _unit,
    "first-unit": _first_unit,
    "no-ledger": _remove("dledger-n0"),
    "stray-empty": _stray("note", 0),
    "stray-word": _stray("note", SIZE),
    "stray-gap": _stray(f"{SIZE * 9:020}", SIZE),
    "stray-next": _stray(f"{SIZE * 4:020}", SIZE),
    "no-ledger-checkpoint": _remove("dledger-n0/checkpoint"),
    "committed-5": _ledger_checkpoint("endIndex=9\ncommittedIndex=5\n"),
    "committed-many": _ledger_checkpoint("committedIndex=1000000\n"),
    "committed-negative": _ledger_checkpoint("committedIndex=-7\n"),
    "committed-word": _ledger_checkpoint("committedIndex=x\n"),
    "committed-escape": _ledger_checkpoint("committedIndex=\\u00zz\n"),
    "end-word": _ledger_checkpoint("endIndex=x\ncommittedIndex=5\n"),
    "queues-reach-far-abort": _both(_queues_reach_far, _abort),
    "no-queues": _remove("consumequeue"),
    "no-queues-abort": _both(_remove("consumequeue"), _abort),
    "no-queues-no-ledger-checkpoint": _both(_remove("consumequeue"), _remove("dledger-n0/checkpoint")),
    "short-queue": _short_queue,
    "short-queue-abort": _both(_short_queue, _abort),
    "no-checkpoint-abort": _both(_remove("checkpoint"), _abort),
    "no-index-files": _remove("index"),
    "no-index-files-abort": _both(_remove("index"), _abort),
}

_FOUR: dict[str, list[Callable[[Ledger], None]]] = {
    "": [],
    "-no-last-data": [_remove_data(-1)],
    "-abort": [_abort],
    "-unit": [_unit_of(1)],
    "-header": [_first_entry_of(1)],
    "-committed-without-unit": [_unit_of(0), _ledger_checkpoint("committedIndex=0\n")],
    "-no-index": [_remove("dledger-n0/index")],
    "-no-first-data": [_remove_data(0)],
    "-bare-record-no-queues-abort": [_bare_record, _remove("consumequeue", "checkpoint"), _abort],
}
_LEDGER |= {f"four-files{name}": _both(_fourth_file, *damage) for name, damage in _FOUR.items()}

_MIXED = {
    name: _LEDGER[name]
    for name in (
        "healthy",
        "abort",
        "entry-magic",
        "body-abort",
        "torn",
        "no-data",
        "no-ledger",
        "no-index",
        "no-queues",
        "no-queues-abort",
        "no-queues-no-ledger-checkpoint",
        "short-queue",
        "no-checkpoint-abort",
        "zeros-in-last-but-one",
    )
} | {"no-plain": _remove("commitlog"), "no-plain-no-queues": _both(_remove("commitlog"), _remove("consumequeue"))}

_PLAIN = _EVERYWHERE | {
    "blank-end": _blank_end,
    "full-end": _full_end,
    "blank-end-abort": _both(_blank_end, _abort),
    "no-queues": _remove("consumequeue"),
    "no-queues-abort": _both(_remove("consumequeue"), _abort),
}

CASES = {"dledger": _LEDGER, "dledger-mixed": _MIXED, "hosts": _PLAIN}


def cases() -> Iterator[tuple[str, str, str]]:
    """Yields release, base and case; the ordinary store is there for 5.5.0 only."""
    for base, found in CASES.items():
        for release in ("4.9.7", "5.5.0"):
            if (base, release) != ("hosts", "4.9.7"):
                yield from ((release, base, name) for name in found)


def build(release: str, base: str, case: str, folder: Path) -> Path:
    """Makes the store of a case."""
    name = f"{base}-{release}"
    root = copy_store(name, folder)
    CASES[base][case](Ledger(root, name))
    return root


def keys(release: str, base: str) -> dict[str, Any]:
    """The broker keys with which a case is opened."""
    port = free_ports(1)[0]
    return {
        **shape_keys(store_fixture(f"{base}-{release}").config),
        "enableDLegerCommitLog": True,
        "dLegerGroup": "broker-a",
        "dLegerSelfId": "n0",
        "dLegerPeers": f"n0-127.0.0.1:{port}",
    }


def files_below(root: Path) -> dict[str, bytes]:
    """Files by name and the beginning of their bytes; nothing that every start writes."""
    found: dict[str, bytes] = {}
    for path in root.rglob("*"):
        name = path.relative_to(root).as_posix()
        if path.is_file() and not name.startswith(("lock", "rocksdbstore/", "abort", "config/", "timer", "compaction")):
            with path.open("rb") as file:
                found[name] = file.read(1 << 20)
    return found


def answer(rocketmq: RocketMQ, release: str, base: str, case: str, folder: Path) -> dict[str, Any]:
    """What the real store of a release makes of a case."""
    root = build(release, base, case, folder)
    before = files_below(root)
    found = rocketmq.answers(root, keys(release, base), work=folder / "work")
    after = files_below(folder / "work" / "store")
    opened = found["opened"][0] if found.get("opened") else None
    runs = opened is not None and opened["loaded"]
    shown = {name for name in before.keys() | after.keys() if "/index/" not in f"/{name}" or "dledger" in name}
    return {
        "release": release,
        "base": base,
        "case": case,
        "exit": None if runs else -1 if opened is None else -3,
        "after_start": [opened["minPhyOffset"], opened["maxPhyOffset"]] if runs and opened else None,
        "queues": {
            f"{q['topic']}/{q['queueId']}": [q["minOffset"], q["maxOffset"]] for q in found["queues"] if q["maxOffset"]
        },
        "served": {f"{q['topic']}/{q['queueId']}": q["served"] for q in found["queues"] if q["served"]},
        "deleted": sorted(name for name in shown if name not in after),
        "created": sorted(name for name in shown if name not in before and not name.endswith(("currterm", ".bak"))),
        "changed": sorted(
            name
            for name in shown & before.keys() & after.keys()
            if before[name] != after[name] and not name.endswith(("currterm", ".bak"))
        ),
        "abort_after": (folder / "work" / "store" / "abort").exists(),
    }


def in_terms_of_answers(outcome: Outcome) -> dict[str, Any]:
    """A prediction with the fields of an answer."""

    def shown(names: tuple[str, ...]) -> list[str]:
        return [name for name in names if not name.startswith(("index/", "config/", "abort", "timer"))]

    served = {name: reading.physical[reading.physical >= 0].tolist() for name, reading in outcome.readings.items()}
    return {
        "exit": outcome.exit,
        "after_start": list(outcome.after_start) if outcome.runs and outcome.after_start else None,
        "queues": {name: [q.min_offset, q.max_offset] for name, q in (outcome.queues or {}).items() if q.max_offset},
        "served": {name: found for name, found in served.items() if found},
        "deleted": shown(outcome.files.deleted),
        "created": shown(outcome.files.created),
        "changed": shown(outcome.files.changed),
        "abort_after": outcome.abort_after,
    }
