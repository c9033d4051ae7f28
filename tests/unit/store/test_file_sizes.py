"""The size of a kind of file, decided from all of them together: what one of them was harmed to decides nothing."""

from pathlib import Path

import pytest

from mqtool.errors import UsageError
from mqtool.store.config.broker_config import BrokerConfig
from mqtool.store.file_sizes import (
    BATCH_CONSUME_QUEUE,
    COMMIT_LOG,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    TIMER_LOG,
    KnownSize,
)
from mqtool.store.files import MappedFile
from mqtool.store.waiting.timer import roll_window

KINDS = [COMMIT_LOG, CONSUME_QUEUE, CONSUME_QUEUE_EXT, BATCH_CONSUME_QUEUE, TIMER_LOG]


def decided(kind, *files, configured=None):
    """The size of files given as (offset, length), or None."""
    config = BrokerConfig({} if configured is None else {kind.key: str(configured)})
    listed = [MappedFile(Path(f"{base:020d}"), base, size) for base, size in files]
    known = kind.decide(config, listed, [])
    return known.value if known else None


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.directory)
@pytest.mark.parametrize("size", [0, 1, 19, -1, 1 << 31, 1 << 62])
def test_a_length_that_can_be_no_size_is_none(kind, size):
    assert decided(kind, (0, size)) is None


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([(0, 1000)], 1000),
        ([(0, 0), (1000, 1000)], 1000),
        ([(0, 1000), (1000, 0)], 1000),
        ([(0, 400), (1000, 1000)], 1000),
        ([(0, 2000), (1000, 1000)], 1000),
        ([(0, 1013), (1000, 1000), (2000, 1000)], 1000),
        ([(0, 1000), (0, 1000), (0, 20), (0, 0), (0, 0), (0, 0)], 1000),
        ([(0, 0), (1000, 0), (2000, 0)], 1000),
        ([(0, 0)], None),
        ([], None),
    ],
)
def test_files_that_were_emptied_cut_or_grown_do_not_decide(files, expected):
    assert decided(CONSUME_QUEUE, *files) == expected


@pytest.mark.parametrize(
    ("sizes", "expected", "is_certain"),
    [
        ([(0, 2000), (0, 2020)], 2020, False),
        ([(0, 2000), (2000, 1000)], 2000, True),
        ([(0, 2000), (2000, 2020)], 2000, True),
        ([(0, 6_000_000), (0, 6_000_020)], 6_000_000, True),
        ([(0, 2000), (0, 2000), (0, 2020)], 2000, True),
        ([(0, 2020)], 2020, True),
    ],
)
def test_of_lengths_that_as_many_files_have_names_and_the_default_decide(sizes, expected, is_certain):
    files = [MappedFile(Path(f"{base:020d}"), base, size) for base, size in sizes]
    known = CONSUME_QUEUE.decide(BrokerConfig(), files, [])
    assert (known.value, known.is_certain) == (expected, is_certain)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.directory)
def test_the_configuration_decides_within_limits(kind):
    assert decided(kind, (0, 4600), configured=9200) == 9200
    for value in (0, -1, kind.minimum - 1, 1 << 31, 10**30):
        with pytest.raises(UsageError, match=f"{kind.key}: expected "):
            decided(kind, configured=value)


@pytest.mark.parametrize(
    ("configured", "slots"), [(None, 172_800), (2, 2), (604_740, 604_740), (0, 604_740), (604_741, 604_740)]
)
def test_an_impossible_roll_window_is_the_largest(configured, slots):
    assert roll_window(BrokerConfig({} if configured is None else {"timerRollWindowSlot": str(configured)})) == slots


@pytest.mark.slow
def test_100_000_files_without_a_byte_are_one_short_line():
    oddities: list[str] = []
    files = [MappedFile(Path(f"{n:020d}"), n, n % 5000) for n in range(100_000)]
    assert isinstance(COMMIT_LOG.decide(BrokerConfig(), files, oddities), KnownSize)
    assert len(oddities[0]) < 1000
