"""Stores of other systems on Spark: the same rows as the plain export."""

import pyarrow.parquet as pq
import pytest

from mqtool.siblings.arrow import batches, export
from mqtool.siblings.registry import recognise
from mqtool.spark.kinds import export_table
from tests.support.chunks import case, damaged, equeue_store, tfchunk_store
from tests.support.stores import answers, copy_store, fixture, tree_digest
from tests.support.tiers import night

ROOTS = {name: equeue_store(name) for name in ("equeue-small", "equeue-2.2.0", "equeue-torn")}
ROOTS |= {"tfchunk-plain": tfchunk_store("plain"), "tiered": fixture("tieredstore-5.5.0/store/tiered")}


def plain(root, table=None):
    with recognise(root).open(root) as opened:
        return [row for batch in batches(opened, table) for row in batch.to_pylist()]


def load(spark, root, **options):
    return spark.read.format("rocketmq-store").options(**options).load(str(root))


@pytest.mark.parametrize("name", [name if name != "equeue-torn" else night(name) for name in ROOTS])
def test_the_source_gives_the_rows_of_the_plain_export(spark, name):
    before = tree_digest(ROOTS[name])
    assert load(spark, ROOTS[name]).toArrow().to_pylist() == plain(ROOTS[name])
    assert tree_digest(ROOTS[name]) == before


def test_every_table_can_be_asked_for(spark):
    root = equeue_store("equeue-small")
    for table in recognise(root).tables:
        assert load(spark, root, table=table.name).toArrow().to_pylist() == plain(root, table.name)


def test_columns_are_chosen(spark):
    root = equeue_store("equeue-small")
    found = load(spark, root, columns="queue_offset, topic").toArrow().to_pylist()
    assert found == [{"queue_offset": row["queue_offset"], "topic": row["topic"]} for row in plain(root)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"topics": "a"}, "option 'topics' does not apply to a store of kind equeue"),
        ({"table": "messages"}, "option 'table': expected equeue-message"),
        ({"columns": "nothing"}, "unknown column"),
    ],
)
def test_what_such_a_store_has_not_is_refused_by_name(spark, options, words):
    with pytest.raises(Exception, match=words):
        load(spark, equeue_store("equeue-small"), **options).count()


def test_damage_does_not_end_the_reading(spark, tmp_path):
    root = damaged("done-record-suffix", tmp_path / "store")
    found = load(spark, root).toArrow().to_pylist()
    assert 0 < len(found) < len(plain(equeue_store(case("done-record-suffix")["base"])))
    assert found == plain(root)


@pytest.mark.parametrize("name", ["dledger-5.5.0", "dledger-mixed-4.9.7"])
def test_a_dledger_log_has_the_rows_that_were_served(spark, name, tmp_path):
    found = load(spark, copy_store(name, tmp_path), include="all").toArrow().to_pylist()
    lines = [line for line in answers(name, "messages") if line["kind"] == "message"]
    assert sorted(row["physical_offset"] for row in found) == sorted(line["phyOffset"] for line in lines)


@pytest.mark.parametrize("name", ["equeue-small", "tfchunk-plain"])
def test_an_export_by_executors_has_the_rows_of_the_plain_one(spark, name, tmp_path):
    with recognise(ROOTS[name]).open(ROOTS[name]) as opened:
        for table in opened.tables:
            export(opened, tmp_path / f"{table.name}.parquet", table.name)
            expected = pq.read_table(tmp_path / f"{table.name}.parquet")
            written = export_table(spark, str(ROOTS[name]), table, tmp_path / "spark" / table.name)
            assert pq.read_table(tmp_path / "spark" / table.name).equals(expected)
            assert sum(one.rows for one in written) == expected.num_rows
