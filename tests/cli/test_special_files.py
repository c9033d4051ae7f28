"""A FIFO, a directory, a socket, a device or a link in the place of a known file: every command ends at once, in one line."""

import os
import socket
from pathlib import Path

import pytest

from tests.support.stores import copy_store
from tests.support.tiers import NIGHT, one_in


def fifo(path: Path) -> None:
    os.mkfifo(path)


def directory(path: Path) -> None:
    path.mkdir()


def unix_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        before = Path.cwd()
        os.chdir(path.parent)  # the path of a socket is short
        bound.bind(path.name)
        os.chdir(before)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def circle(path: Path) -> None:
    path.symlink_to(path.name)


def link_out(path: Path) -> None:
    outside = path.parents[len(path.relative_to(root_of(path)).parts)] / "outside"
    outside.write_bytes(b"not the store's")
    path.symlink_to(outside)


def nowhere(path: Path) -> None:
    path.symlink_to("/no/such/directory/file")


KINDS = [fifo, directory, unix_socket, device, circle, link_out]
PLACES = [
    "abort",
    "abort.bak",
    "lock",
    "checkpoint",
    "config/topics.json",
    "config/consumerOffset.json",
    "commitlog/00000000000000000000",
    "consumequeue/TxBits/0/00000000000000000000",
    "index/20990101000000000",
    "timerwheel",
    ".mqtool",
    "epochFileCheckpoint",
]
COMMANDS = [
    ("info", "STORE"),
    ("dump", "STORE"),
    ("verify", "STORE"),
    ("explain-start", "STORE", "--release", "4.9"),
    ("explain-start", "STORE", "--release", "5.5"),
    ("report", "STORE", "-o", "OUT/report.html"),
    ("backup", "STORE", "-o", "OUT/backup"),
    ("restore", "STORE", "-o", "OUT/restored"),
    ("salvage", "STORE", "-o", "OUT/salvaged"),
    ("diff", "STORE", "STORE"),
    ("clean", "STORE", "--dry-run"),
    ("plan", "rebuild", "all", "STORE", "-o", "OUT/plan.json"),
    ("undo", "STORE", "--yes"),
    ("discard-undo", "STORE", "--yes"),
    ("replay", "STORE", "--into", "OUT/replayed"),
    ("export", "STORE", "--output", "OUT/lake"),
    ("rebuild", "all", "STORE", "--output", "OUT/rebuilt"),
    ("append", "STORE", "--from", "OUT/rows.jsonl", "--dry-run"),
    ("append", "STORE", "--from", "OUT/rows.jsonl"),
    ("plan", "recover", "STORE", "-o", "OUT/recover.json"),
    ("plan", "recover", "STORE", "--mode", "compatible", "-o", "OUT/compatible.json"),
    ("apply", "OUT/compatible.json", "--yes"),
]


def root_of(path: Path) -> Path:
    return next(parent for parent in path.parents if parent.name == "store")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("place", PLACES)
def test_what_is_no_regular_file_is_refused_at_once(mqtool, tmp_path, kind, place):
    root, out = copy_store("txbits-4.9.7", tmp_path), tmp_path / "out"
    out.mkdir()
    (out / "rows.jsonl").write_text('{"topic": "Good", "queue_id": 0, "body": "text"}\n')
    path = root / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    kind(path)
    number = KINDS.index(kind) + PLACES.index(place)
    chosen = COMMANDS if NIGHT else COMMANDS[number % 7 :: 7]
    for words in chosen:
        result = mqtool(*(word.replace("STORE", str(root)).replace("OUT", str(out)) for word in words))
        assert result.code in {0, 1, 2, 4, 74}, (words, result.stderr)
        assert "Traceback" not in result.stderr
    if kind is link_out:
        assert (tmp_path / "outside").read_bytes() == b"not the store's"


@pytest.mark.parametrize("kind", [circle, nowhere])
@pytest.mark.parametrize(
    "place",
    one_in(
        2,
        [
            "commitlog/00000000000000131072",
            "commitlog/00000000000000655360",
            "commitlog/00000000000000917504",
            "commitlog/00000000000000983040",
            "consumequeue/Orders/0/00000000000000000000",
            "index/20991231235959999",
        ],
    ),
)
def test_a_link_that_leads_nowhere_in_the_place_of_a_segment_or_an_index_file_is_a_finding(
    mqtool, tmp_path, kind, place
):
    whole, root = copy_store("orders-5.5.0", tmp_path / "whole"), copy_store("orders-5.5.0", tmp_path / "linked")
    (root / place).unlink(missing_ok=True)
    kind(root / place)
    verified = mqtool("verify", root, "--format", "json")
    assert verified.code in {0, 1}, verified.stderr
    assert place in {row["file"] for row in verified.document["findings"] if row["severity"] != "note"}
    assert mqtool("explain-start", root).code == 1 or place.startswith("consumequeue")
    assert mqtool("runbook", "match", root).code == 0
    assert mqtool("diff", whole, root).code in {0, 1}
    assert mqtool("clean", root, "--dry-run").code in {0, 4}


def test_an_index_file_that_leads_nowhere_keeps_5_5_from_starting(mqtool, tmp_path):
    """IndexService.load returns false for it; 4.9 ignores that."""
    root = copy_store("orders-5.5.0", tmp_path)
    path = root / "index" / "20991231235959999"
    circle(path)
    start = mqtool("explain-start", root, "--release", "5.5", "--format", "json").document
    problem = f"java.io.FileNotFoundException: {path} (Too many levels of symbolic links)"
    assert (start["exit"], start["refusal"]) == (-3, f"load file {path} error {problem}")
    assert mqtool("explain-start", root, "--release", "4.9", "--format", "json").document["exit"] is None
