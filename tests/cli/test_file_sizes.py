"""Files that were emptied, cut, grown or copied: every command answers about them, none takes a length that is not a size."""

import shutil
import time
from pathlib import Path

import pytest

from tests.support.stores import copy_store, copy_tree, fixture


def files_of(root: Path, part: str) -> list[Path]:
    """The files below a part of a store, by name."""
    return sorted(path for path in (root / part).rglob("*") if path.is_file())


def cut(path: Path, size: int) -> None:
    """Give a file another length."""
    with path.open("r+b") as file:
        file.truncate(size)


def one_segment(tmp_path: Path) -> Path:
    """A store with a single segment."""
    root = copy_store("txbits-4.9.7", tmp_path)
    for path in files_of(root, "commitlog")[1:]:
        path.unlink()
    return root


def test_salvage_of_a_store_whose_only_segment_is_empty_says_that_nothing_is_left(mqtool, tmp_path):
    root = one_segment(tmp_path)
    cut(files_of(root, "commitlog")[0], 0)
    assert mqtool("salvage", root, "-o", tmp_path / "new").code in {1, 4}
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("command", [["info"], ["find", "--key", "k0"], ["clean", "--dry-run"], ["explain-start"]])
def test_a_crashed_store_with_an_empty_queue_file_is_read(mqtool, tmp_path, command):
    root = copy_store("metadata-4.9.7", tmp_path)
    (root / "abort").touch()
    cut(files_of(root, "consumequeue/SCHEDULE_TOPIC_XXXX/2")[0], 0)
    assert mqtool(command[0], root, *command[1:]).code in {0, 1, 4}


@pytest.mark.parametrize("size", [0, 1, 4, 100])
@pytest.mark.parametrize("release", ["4.9", "5.5"])
def test_explain_start_with_an_only_segment_that_is_cut(mqtool, tmp_path, release, size):
    root = one_segment(tmp_path)
    cut(files_of(root, "commitlog")[0], size)
    assert mqtool("explain-start", root, "--release", release).code in {0, 1}


@pytest.mark.parametrize("store", ["txbits-4.9.7", "crash-5.5.0"])
def test_recover_refuses_a_cut_segment_and_names_it(mqtool, tmp_path, store):
    root = copy_store(store, tmp_path)
    cut(files_of(root, "commitlog")[0], 4)
    assert mqtool("plan", "recover", root, "-o", tmp_path / "plan.json").code == 4


def grown(path: Path) -> None:
    """Some bytes more."""
    cut(path, path.stat().st_size + 7)


def doubled(path: Path) -> None:
    """A copy under the name of another offset."""
    shutil.copy(path, path.with_name(f"{int(path.name) + path.stat().st_size:020d}"))


@pytest.mark.parametrize("harm", [grown, doubled])
def test_a_plan_from_findings_with_a_timer_queue_of_an_odd_length(mqtool, tmp_path, harm):
    root = copy_store("timer-5.5.0", tmp_path)
    harm(files_of(root, "consumequeue/rmq_sys_wheel_timer")[0])
    found = mqtool("verify", root, "--format", "json")
    assert found.code in {0, 1}
    findings = tmp_path / "findings.json"
    findings.write_bytes(found.stdout)
    assert mqtool("plan", "repair", root, "--findings", findings, "-o", tmp_path / "plan.json").code in {0, 1}


def test_salvage_of_an_equeue_chunk_with_a_topic_that_is_no_text(mqtool, tmp_path):
    root = copy_tree(fixture("equeue-small/store"), tmp_path / "store")
    chunk = next(path for path in files_of(root, ".") if b"\x00" in path.read_bytes() and "message" in path.name)
    data = chunk.read_bytes()
    topic = next(path for path in root.rglob("*") if path.is_dir() and path.name == "0").parent.name.encode()
    at = data.index(topic)
    chunk.write_bytes(data[:at] + b"\xff" + data[at + 1 :])
    assert mqtool("salvage", root, "-o", tmp_path / "new").code in {0, 1, 4}


@pytest.mark.parametrize("value", [0, 1, -1, 127])
def test_a_size_in_the_configuration_that_can_be_none_is_refused(mqtool, tmp_path, value):
    root = one_segment(tmp_path)
    conf = tmp_path / "broker.conf"
    conf.write_text(f"mappedFileSizeCommitLog={value}\n")
    result = mqtool("info", root, "--config", conf)
    assert result.code == 2
    assert f"mappedFileSizeCommitLog: expected at least 128, found {value}" in result.stderr


def test_thousands_of_segments_without_a_byte_are_verified_at_once(mqtool, tmp_path):
    (tmp_path / "commitlog").mkdir()
    for number in range(5000):
        (tmp_path / "commitlog" / f"{number * 1024:020d}").touch()
    begin = time.process_time()
    assert mqtool("verify", tmp_path).code == 1
    assert time.process_time() - begin < 20  # minutes where each file is looked for among all others
    assert mqtool("explain-start", tmp_path).code in {0, 1, 4}


def test_a_queue_file_under_a_name_that_is_no_multiple_of_a_unit(mqtool, tmp_path):
    root = copy_store("metadata-5.5.0", tmp_path)
    first = files_of(root, "consumequeue/MetaAuto/2")[0]
    shutil.copy(first, first.with_name(f"{1:020d}"))
    assert mqtool("explain-start", root, "--release", "5.5").code in {0, 1}
