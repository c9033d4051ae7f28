"""However many records a round of dispatch finds, the files are the same: few are taken one by one, many as columns."""

from pathlib import Path

import pytest

from mqtool.engine import MessageStore
from tests.support.engine import open_small

SIZES = {"commit_log_file_size": 1 << 15, "consume_queue_file_size": 2000, "index_slots": 50, "index_entries": 4000}


def filled(path: Path, *, every: int) -> MessageStore:
    """A store with 600 messages of many lengths in six queues, dispatched after `every` of them."""
    store = open_small(path, **SIZES)
    for number in range(600):
        held = b"KEYS\x01k%d\x02TAGS\x01t%d\x02" % (number, number % 5)
        store.put(f"topic-{number % 3}", number % 2, b"b" * (number * 7 % 300), held)
        if number % every == every - 1:
            store.dispatch()
    return store


def derived(root: Path) -> dict[str, bytes]:
    """Every file of queues and index, by what it is."""
    files = (path for path in (root / "consumequeue").rglob("*") if path.is_file())
    queues = {str(path.relative_to(root)): path.read_bytes() for path in files}
    return queues | {
        f"index {number}": path.read_bytes() for number, path in enumerate(sorted((root / "index").iterdir()))
    }


@pytest.mark.parametrize("every", [5, 23, 24, 97, 1000])
def test_rounds_of_any_size_write_the_same_files(in_memory, every):
    for name, size in (("rounds", every), ("one by one", 1)):
        with filled(in_memory / name, every=size) as store:
            store.dispatch()
            assert (
                sum(store.queue_bounds(f"topic-{topic}", queue)[1] for topic in range(3) for queue in range(2)) == 600
            )
    assert derived(in_memory / "rounds") == derived(in_memory / "one by one")
