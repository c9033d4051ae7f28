"""A conversion killed between two system calls: `python -m tests.support.conversion_kills WHAT DIRECTORY`.

DIRECTORY holds `store`. After each kill there is no store of the new name, or a whole one, and the same command makes it.
In a process of its own that never opens RocksDB itself: its threads would not survive the forks in which the command runs.
"""

import shutil
import sys
from pathlib import Path

from tests.support.syscall_kills import asked_in_fork, contents, fill, kills, messages_of, run_in_fork


def main() -> None:
    """Kills at each point; an assertion names the one that failed."""
    what, directory = sys.argv[1], Path(sys.argv[2])
    store, out = directory / "store", directory / "out"
    before, words = contents(store), ["convert", what, "STORE", "-o", "OUT/new"]

    def empty() -> None:
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()

    def ends(words: list[str]) -> int:
        return run_in_fork(fill(words, store, out), directory)[0]

    def made() -> object:
        return asked_in_fork(lambda: messages_of(out / "new"))

    empty()
    assert ends(words) == 0
    expected = made()
    assert expected
    for point in kills(words, store, out, empty):
        if not (out / "new").exists():
            assert ends(words) == 0, point
            assert [path.name for path in out.iterdir()] == ["new"], point
        assert made() == expected, point
        assert ends(["verify", "OUT/new", "--fail-on", "error"]) == 0, point
        assert contents(store) == before, point
    assert "rocksdict" not in sys.modules


if __name__ == "__main__":
    main()
