"""The fixture that watches where tests write sees what it must, and lets pass what is meant for tests."""

import os
import tempfile
from pathlib import Path

import pytest

from tests import conftest


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.mkdir(),
        lambda path: path.touch(),
        lambda path: path.write_bytes(b""),
        lambda path: os.truncate(path, 0),
        lambda path: path.unlink(),
        lambda path: path.rename(path.with_name("other")),
        lambda path: path.symlink_to("x"),
    ],
)
def test_a_change_outside_is_seen(change):
    with pytest.raises(OSError, match="No such file"):
        change(Path("/absent/evil"))
    assert [seen.split()[1].startswith("/absent/") for seen in conftest._WATCH.strange] in ([True], [True, True])
    conftest._WATCH.strange.clear()


def test_what_a_name_from_a_record_could_make_beside_the_directories_of_tests_is_seen():
    given = Path(tempfile.gettempdir(), "pytest-of-nobody", "pytest-0", "test_x0")
    for name, count in (("../evil", 1), ("new", 0)):
        with pytest.raises(FileNotFoundError):
            (given / name).mkdir()
        assert len(conftest._WATCH.strange) == count
        conftest._WATCH.strange.clear()
