"""When compiled loops are used: for large logs, where numba is, and never such as were made of older sources."""

import importlib.util
import os
from pathlib import Path

import pytest

from mqtool import kernels
from mqtool.kernels import choice


@pytest.fixture
def numba():
    if kernels.load() is None:
        pytest.skip("needs numba")


def test_a_small_log_is_read_without(numba):
    with kernels.use(kernels.LARGE - 1):
        assert kernels.kernels() is None


def test_a_large_one_is_read_with_them_until_it_is_done(numba):
    with kernels.use(kernels.LARGE):
        found = kernels.kernels()
        assert found is not None
        with kernels.use(kernels.LARGE):
            assert kernels.kernels() is found
        assert kernels.kernels() is found
    assert kernels.kernels() is None


def test_they_are_put_away_after_an_error(numba):
    with pytest.raises(RuntimeError), kernels.use(kernels.LARGE):
        raise RuntimeError
    assert kernels.kernels() is None


def test_without_numba_there_are_none(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with kernels.use(kernels.LARGE):
        assert kernels.kernels() is None


def test_without_the_crc_of_isal_there_are_none(numba, monkeypatch):
    from mqtool.kernels import body_crc

    monkeypatch.setattr(body_crc, "HAS_CRC32", False)
    assert kernels.load() is None


def test_what_was_compiled_of_older_sources_is_dropped(tmp_path: Path):
    package = tmp_path / "kernels"
    cache, formats = package / "__pycache__", tmp_path / "formats"
    for directory in (cache, formats):
        directory.mkdir(parents=True)
    times = {package / "trailers.py": 10, formats / "commit_log.py": 20, cache / "old.nbi": 19, cache / "new.nbi": 21}
    for path, time in times.items():
        path.write_bytes(b"")
        os.utime(path, (time, time))
    choice._forget_stale(package)
    assert [path.name for path in sorted(cache.iterdir())] == ["new.nbi"]
