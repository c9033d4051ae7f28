"""The files of ConsumeQueueExt: every unit is found, also one whose end is a hole or is in the next piece read."""

import os

import numpy as np
import pytest

from mqtool.errors import FormatError
from mqtool.formats.consume_queue import build_ext_unit, ext_address, make_ext_unit
from mqtool.store.entries import rows_of
from mqtool.store.known_file import recognise
from mqtool.store.queues.consume_queue import ExtUnits


def written(root, units, size, tail=b""):
    """Writes units into an extension file and makes a hole of everything after the last byte that is not zero."""
    path = root / "consumequeue_ext" / "T" / "0" / f"{0:020d}"
    path.parent.mkdir(parents=True)
    data = b"".join(map(build_ext_unit, units)) + tail
    path.write_bytes(data.rstrip(b"\0"))
    os.truncate(path, size)
    return path


def places(units):
    return [0, *np.cumsum([unit.size for unit in units]).tolist()]


@pytest.mark.parametrize("count", [4, 800, 1600])
def test_bulk_reader_and_dump_find_every_unit(tmp_path, count):
    units = [make_ext_unit(number, 1_700_000_000_000 + number, bytes(1300)) for number in range(count)]
    path = written(tmp_path, units, 3 << 20)
    addresses = [ext_address(at) for at in places(units)]
    extension, problems = ExtUnits(tmp_path, "T", 0), []
    tags = extension.tags_of(np.array(addresses[:-1]), problems)
    assert (tags.tolist(), problems, extension.malformed) == (list(range(count)), [], [])
    assert [extension.unit_at(address) for address in addresses] == [*units, None]
    rows = list(rows_of(recognise(path)))
    assert [(row["address"], row["tags_code"]) for row in rows] == list(zip(addresses[:-1], range(count), strict=True))


def test_both_name_the_position_of_what_is_no_unit(tmp_path):
    units = [make_ext_unit(number, 5, b"\1" * 100) for number in range(10_000)]
    path = written(tmp_path, units, 3 << 20, tail=b"\0\7")
    with pytest.raises(FormatError, match="size 7 is below 20") as caught:
        list(rows_of(recognise(path)))
    assert (caught.value.position, caught.value.field) == (1_200_000, "size")
    [words] = ExtUnits(tmp_path, "T", 0).malformed
    assert words == f"{path.name}: ext unit.size at position 1200000: size 7 is below 20"
