"""When compiled loops are used: where they are compiled and the log is not tiny, and never such as were made of older
sources."""

import gc
import importlib.util
import logging
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import mqtool
from mqtool import kernels
from mqtool.kernels import choice
from mqtool.records.walk import SegmentSpan, SegmentWalk
from mqtool.verify import verify
from tests.support.big_store import write_big_store
from tests.unit.rebuild.model import laid_out, record

DIRECTORIES = choice._directories()


def compiled_file() -> Path:
    """The file with the kernels for this processor, wherever it was compiled into."""
    name = choice.file_name(choice._cpu())
    return next(directory / name for directory in DIRECTORIES if (directory / name).is_file())


@pytest.fixture(autouse=True)
def unused(monkeypatch):
    """As in a new process."""
    monkeypatch.setattr(choice, "_loaded", [])
    monkeypatch.setattr(choice, "_missing", [])


@pytest.fixture
def compiled():
    if kernels.load() is None:
        pytest.skip("needs numba")


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A directory in place of those where compiled kernels are looked for."""
    monkeypatch.setattr(choice, "_directories", lambda: [tmp_path])
    return tmp_path


def test_a_small_log_is_read_without(compiled):
    with kernels.use(kernels.LARGE - 1):
        assert kernels.kernels() is None


def test_a_large_one_is_read_with_them_until_it_is_done(compiled):
    with kernels.use(kernels.LARGE):
        found = kernels.kernels()
        assert found is not None
        with kernels.use(kernels.LARGE):
            assert kernels.kernels() is found
        assert kernels.kernels() is found
    assert kernels.kernels() is None


def test_they_are_put_away_after_an_error(compiled):
    with pytest.raises(RuntimeError), kernels.use(kernels.LARGE):
        raise RuntimeError
    assert kernels.kernels() is None


def test_without_numba_nothing_is_compiled(elsewhere, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with kernels.use(choice.COMPILE):
        assert kernels.kernels() is None
    assert list(elsewhere.iterdir()) == []


def test_a_log_that_is_not_very_large_waits_for_no_compiler(elsewhere, monkeypatch):
    monkeypatch.setattr(choice, "_compile", lambda name, cpu: pytest.fail("compiled"))
    with kernels.use(choice.COMPILE - 1):
        assert kernels.kernels() is None


def test_without_the_crc_of_isal_there_are_none(compiled, monkeypatch):
    monkeypatch.setitem(sys.modules, "isal", None)
    assert kernels.load(may_compile=False) is None


def test_other_processors_have_none(compiled, monkeypatch):
    monkeypatch.setattr(choice.sys, "platform", "darwin")
    assert kernels.load() is None


def test_changed_sources_have_another_name(monkeypatch, tmp_path):
    package = tmp_path / "kernels"
    package.mkdir()
    (package / "one.py").write_text("ONE = 1\n")
    monkeypatch.setattr(choice, "__file__", str(package / "choice.py"))
    before = choice.file_name("x86-64")
    assert choice.file_name("x86-64") == before
    (package / "one.py").write_text("ONE = 2\n")
    assert choice.file_name("x86-64") != before


@pytest.mark.parametrize("harm", ["cut off", "changed", "another file"])
def test_a_harmed_file_is_not_run(compiled, elsewhere, monkeypatch, harm):
    source = compiled_file()
    shutil.copy(source, elsewhere)
    assert kernels.load(may_compile=False) is not None
    data = bytearray(source.read_bytes())
    if harm == "changed":
        data[-100] ^= 1
    (elsewhere / source.name).write_bytes({"cut off": data[:-1], "changed": data, "another file": b"text"}[harm])
    assert kernels.load(may_compile=False) is None


def test_a_walk_of_a_large_log_uses_them_from_then_on(compiled):
    data = laid_out([record(body=bytes(1 << 20))] * 9)[0]
    items = list(SegmentWalk(lambda at, count: data[at : at + count], SegmentSpan(0, len(data), is_last=True)))
    assert sum(len(item) for item in items) == 9
    assert kernels.kernels() is not None


def test_a_walk_looks_for_them_once(elsewhere, monkeypatch):
    asked = []
    monkeypatch.setattr(choice, "load", lambda **_: asked.append(1))
    kernels.start(0)
    kernels.start(0)
    assert len(asked) == 1
    kernels.start(kernels.COMPILE)
    assert len(asked) == 2


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts open files in /proc")
def test_uses_one_after_the_other_open_one_file(compiled):
    def uses() -> int:
        for _ in range(3):
            with kernels.use(kernels.LARGE):
                assert kernels.kernels() is not None
        gc.collect()  # files that earlier tests have left open are closed now, or in the middle
        return len([*Path("/proc/self/fd").iterdir()])

    assert uses() == uses()


def test_only_a_run_that_compiles_says_so(compiled, elsewhere, monkeypatch, caplog):
    def compile_(command: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        """Takes what is compiled already."""
        assert command[1:] == ["-m", "mqtool.kernels.build", str(elsewhere), choice._cpu()]
        shutil.copy(compiled_file(), elsewhere)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", compile_)
    with caplog.at_level(logging.WARNING):
        assert kernels.load() is not None
        assert [record.getMessage() for record in caplog.records] == [
            "mqtool: compiling loops for large logs, once on this machine; this takes about half a minute"
        ]
        caplog.clear()
        assert kernels.load() is not None
        assert not caplog.records
    assert len(list(elsewhere.iterdir())) == 1


def test_neither_numba_nor_llvmlite_is_imported_to_use_them(compiled):
    code = (
        "import sys\nfrom mqtool import kernels\nassert kernels.load(may_compile=False)\n"
        "print(sorted(sys.modules.keys() & {'numba', 'llvmlite'}))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


def test_verify_goes_by_what_is_in_the_log_not_by_the_size_of_its_files(tmp_path, monkeypatch):
    """A broker makes a file of 1 GiB for the first message."""
    root = write_big_store(tmp_path / "store", 50, size=100, segment=1 << 20)
    (file,) = (root / "commitlog").iterdir()
    with file.open("r+b") as opened:
        opened.truncate(choice.COMPILE)
    asked = []
    monkeypatch.setattr(choice, "load", lambda **options: asked.append(options))
    with mqtool.open(root) as store:
        verify(store)
    assert asked == []
