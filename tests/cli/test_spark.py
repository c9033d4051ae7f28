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
from tests.support.engine import tree
from tests.support.stores import fixture
from tests.support.task_rebuild import run_here

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


def test_a_store_is_rebuilt_by_a_session_into_a_directory_that_appears_when_it_is_complete(
    mqtool, session, monkeypatch, tmp_path
):
    used = []

    def runner(found):
        used.append((found, found.stopped))
        return run_here

    monkeypatch.setattr("mqtool.spark.rebuild.runner", runner)
    monkeypatch.chdir(tmp_path)
    words = ("rebuild", "all", STORE, "-f", "json")
    result = mqtool(*words, "--spark", "--output", "new")
    plain = mqtool(*words, "--output", "plain")
    assert (result.code, plain.code) == (ExitCode.OK, ExitCode.OK)
    clock = ("out", "seconds", "records_per_second")
    expected = {name: value for name, value in plain.document.items() if name not in clock}
    assert {name: value for name, value in result.document.items() if name not in clock} == expected
    assert tree(tmp_path / "new") == tree(tmp_path / "plain")
    assert (used, session.stopped) == ([(session, 0)], 1)
    again = mqtool(*words, "--spark", "--output", "new")
    assert (again.code, "new: expected a new or empty directory" in again.stderr) == (ExitCode.USAGE, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "plain"]


def test_a_rebuild_of_a_store_in_object_storage_starts_no_session(mqtool, session, tmp_path):
    result = mqtool("rebuild", "index", "s3://bucket/store", "--output", tmp_path / "new", "--spark")
    assert (result.code, session.where) == (ExitCode.REFUSED, None)
    assert "s3:/bucket/store: object storage is read by `mqtool export`" in result.stderr


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
