"""Controller mode's text files."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtool.errors import ChecksumError, FormatError, TruncatedError
from mqtool.formats import epoch, java
from mqtool.formats.epoch import EpochEntry
from tests.unit.formats.real import files, label

entries = st.lists(st.builds(EpochEntry, st.integers(0, java.INT_MAX), st.integers(0, java.LONG_MAX)), max_size=5)
SAMPLE = b"3\n1387529775\n1-0\n2-38270\n3-78295\n"


@pytest.mark.parametrize("path", files("epochFileCheckpoint*"), ids=label)
def test_every_real_epoch_file_is_written_back_to_its_own_bytes(path):
    data = path.read_bytes()
    found = epoch.parse(data)
    assert found
    assert epoch.build(found) == data


def test_a_known_epoch_file():
    assert epoch.parse(SAMPLE) == (EpochEntry(1, 0), EpochEntry(2, 38270), EpochEntry(3, 78295))


@given(entries)
def test_a_built_epoch_file_is_parsed_to_the_same_entries(found):
    assert list(epoch.parse(epoch.build(found))) == found


def test_every_truncation_is_an_error_but_that_of_the_last_line_end():
    assert epoch.parse(SAMPLE[:-1]) == epoch.parse(SAMPLE)
    for size in range(len(SAMPLE) - 1):
        with pytest.raises(FormatError):
            epoch.parse(SAMPLE[:size])


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", TruncatedError),
        (b"1\n", TruncatedError),
        (b"4" + SAMPLE[1:], TruncatedError),
        (b"2" + SAMPLE[1:], FormatError),
        (SAMPLE.replace(b"38270", b"38271"), ChecksumError),
        (SAMPLE.replace(b"1-0", b"1 0"), FormatError),
        (b"x\n0\n", FormatError),
        (b"1\nx\n1-0\n", FormatError),
        (b"1\n0\n1-x\n", FormatError),
        (b"1\n0\n1-9223372036854775808\n", FormatError),
        (b"\xff\n0\n", FormatError),
        (b"-1\n0\n1-0\n", FormatError),
    ],
)
def test_damage_is_an_error(data, error):
    with pytest.raises(error):
        epoch.parse(data)


def test_a_crc_of_zero_is_not_verified():
    assert epoch.parse(b"1\n0\n7-8\n") == (EpochEntry(7, 8),)
