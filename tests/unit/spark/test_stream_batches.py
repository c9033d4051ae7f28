"""Micro-batches of a log, as Spark asks for them; no Java is needed."""

from itertools import pairwise

import pytest

from tests.support.stores import store_fixture

pytest.importorskip("pyspark")

from mqtool.spark.options import parse
from mqtool.spark.stream import StoreStreamReader


@pytest.mark.parametrize("limit", [1, 8192])
@pytest.mark.parametrize("name", ["dledger-5.5.0", "rollover-5.5.0"])
def test_small_batches_contain_each_record_once(name, limit):
    path = str(store_fixture(name).directory)
    reader = StoreStreamReader(
        parse({"path": path, "include": "all", "maxBytesPerTrigger": str(limit)}), ["physical_offset"]
    )

    def read(start, end):
        batches = [batch for split in reader.partitions(start, end) for batch in reader.read(split)]
        return [offset for batch in batches for offset in batch.column(0).to_pylist()]

    ends = [reader.initialOffset()]
    while len(ends) < 10:
        ends.append(reader.latestOffset(ends[-1], reader.getDefaultReadLimit()))
    found = [read(start, end) for start, end in pairwise(ends)]
    assert all(found)
    assert [offset for offsets in found for offset in offsets] == read(ends[0], ends[-1])
