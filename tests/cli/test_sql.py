"""`mqtool sql`."""

import json
import subprocess
import sys

from mqtool.cli.app import run
from tests.support.damage import damage_case
from tests.support.stores import store_fixture

STORE = str(store_fixture("orders-5.5.0").directory)


def test_the_answer_in_every_format(capsysbinary):
    sql = "SELECT topic, count(*) AS n, max(store_timestamp) AS last FROM messages WHERE topic = 'Orders' GROUP BY ALL"
    assert run(["sql", STORE, sql, "--format", "json"]) == 0
    found = json.loads(capsysbinary.readouterr().out)
    assert (found["schema"], found["ok"]) == ("sql.row", True)
    assert (found["rows"][0]["topic"], found["rows"][0]["n"]) == ("Orders", 96)
    assert found["rows"][0]["last"].endswith("Z")
    assert run(["sql", STORE, sql, "--format", "csv"]) == 0
    assert capsysbinary.readouterr().out.splitlines()[0] == b"topic,n,last"
    assert run(["sql", STORE, sql]) == 0
    assert b"Orders" in capsysbinary.readouterr().out


def test_explain_prints_what_was_read(capsysbinary):
    sql = "SELECT count(*) FROM messages WHERE topic = 'Orders' AND queue_id = 1"
    assert run(["sql", STORE, sql, "--explain", "--trust", "queues", "--format", "jsonl"]) == 0
    row = json.loads(capsysbinary.readouterr().out)
    assert (row["path"], row["rows"], row["segments"], row["segments_skipped"]) == ("queues", 40, 5, 4)
    assert 0 < row["bytes_needed"] <= row["bytes_read"] < row["log_bytes"]


def test_statements_from_stdin():
    statements = "SELECT 1 AS a;\nSELECT count(*) AS n FROM topics WHERE topic = 'a;b';"
    command = [sys.executable, "-m", "mqtool", "sql", STORE, "--format", "jsonl"]
    found = subprocess.run(command, input=statements, capture_output=True, text=True, check=True)
    assert [json.loads(line) for line in found.stdout.splitlines()] == [{"a": 1}, {"n": 0}]


def test_bad_sql_is_one_line_and_code_2(capsys):
    assert run(["sql", STORE, "SELECT tpoic FROM messages"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert 'column "tpoic" not found' in line
    assert run(["sql", "SELECT 1"]) == 2
    assert "no store before the statement" in capsys.readouterr().err


def test_what_is_no_store_is_named(tmp_path, capsys):
    assert run(["sql", str(tmp_path), "SELECT 1"]) == 4
    assert str(tmp_path) in capsys.readouterr().err


def test_damage_is_reported(tmp_path, capsys):
    path = damage_case("old-flip-body@4.9.7-clean", tmp_path)
    assert run(["sql", str(path), "SELECT count(*) FROM messages"]) == 1
    assert "1 damaged range(s)" in capsys.readouterr().err
