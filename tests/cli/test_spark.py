"""`--spark`: the session is stopped however the work ends, and its results are those of this process.

Spark itself is replaced: `tests/spark` runs it.
"""

from types import SimpleNamespace

import pytest

from mqtool.cli.exits import ExitCode
from mqtool.cli.options import OnSpark, spark_session
from mqtool.export.plain import LocalRunner
from mqtool.verify import Options, verify
from tests.support.chunks import equeue_store
from tests.support.stores import fixture

pytest.importorskip("pyspark")

STORE = fixture("orders-5.5.0/store")
SMALL = equeue_store("equeue-small")


@pytest.fixture
def session(monkeypatch):
    """A session that notes how it was made and whether it was stopped."""
    made = SimpleNamespace(stopped=0, where=None)

    def stop():
        made.stopped += 1

    def build(master, settings):
        made.where = master, settings
        return made

    made.stop = stop
    monkeypatch.setattr("mqtool.spark.session.build", build)
    return made


def test_a_session_is_stopped_after_an_error(session):
    def work():
        with spark_session(OnSpark("local[2]", {"a": "b"})) as found:
            assert (found, session.stopped) == (session, 0)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    assert (session.where, session.stopped) == (("local[2]", {"a": "b"}), 1)


def test_a_store_is_verified_by_a_session(mqtool, session, monkeypatch):
    asked = []

    def verify_on(used, store, topics, _on_progress, *, broker):
        asked.append((used, topics, broker))
        return verify(store, Options(topics, broker=broker))

    monkeypatch.setattr("mqtool.spark.verify.verify_on", verify_on)
    words = ("--topic", "Orders", "--release", "5.5", "-f", "json")
    result = mqtool("verify", STORE, "--spark", "--master", "local[3]", "--conf", "x=1", *words)
    here = mqtool("verify", STORE, *words).document
    assert (result.code, {**result.document, "seconds": here["seconds"]}) == (ExitCode.OK, here)
    assert (asked, session.where, session.stopped) == ([(session, ("Orders",), "5.5")], ("local[3]", {"x": "1"}), 1)


def test_messages_are_exported_by_a_session(mqtool, session, monkeypatch, tmp_path):
    used = []

    def runner(found, _on_progress):
        used.append(found)
        return LocalRunner(1)

    monkeypatch.setattr("mqtool.spark.job.SparkRunner", runner)
    result = mqtool("export", STORE, "--output", tmp_path / "lake", "--spark", "-f", "json")
    assert result.code == ExitCode.OK
    assert (used, session.stopped) == ([session], 1)


@pytest.mark.parametrize("damage", [[], ["bytes 5 to 9 of chunk 1"]], ids=["intact", "damaged"])
def test_a_store_of_another_kind_is_exported_by_a_session_table_by_table(
    mqtool, session, monkeypatch, tmp_path, damage
):
    tables = []

    def export_table(used, root, table, folder):
        tables.append((used, root, table.name, folder))
        parts = [SimpleNamespace(rows=2, damage=[]), SimpleNamespace(rows=3, damage=damage)]
        return parts if table.name == "equeue-message" else parts[:1]

    monkeypatch.setattr("mqtool.spark.kinds.export_table", export_table)
    target = tmp_path / "out"
    result = mqtool("export", SMALL, "--output", target, "--spark", "-f", "json")
    assert result.code == (ExitCode.NO if damage else ExitCode.OK)
    rows = {row["table"]: row for row in result.document["rows"]}
    assert {name: row["rows"] for name, row in rows.items()} == {
        name: 5 if name == "equeue-message" else 2 for _, _, name, _ in tables
    }
    assert [folder.name for *_, folder in tables] == [f"{name}.parquet" for _, _, name, _ in tables]
    assert all((used, root) == (session, str(SMALL)) for used, root, *_ in tables)
    assert session.stopped == 1
