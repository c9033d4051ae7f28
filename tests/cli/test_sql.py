"""`mqtool sql`."""

import contextlib
import io
import json
import os
import pty
import re
import select
import shlex
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from mqtool.cli.app import run
from mqtool.cli.commands import sql as sql_prompt
from mqtool.cli.commands.sql import _plain
from mqtool.scan.reading import Reading
from tests.support.damage import damage_case
from tests.support.stores import copy_store, store_fixture

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "sql.md").read_text()
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


VALUES = {
    "TIMESTAMP '2026-11-21 00:39:45.5' - TIMESTAMP '2026-11-20 23:39:45'": "PT3600.5S",
    "INTERVAL '14 months 3 days'": "P14M3D",
    "INTERVAL '-2 hours'": "PT-7200S",
    "INTERVAL '0 days'": "PT0S",
    "DATE '2026-01-02'": "2026-01-02",
    "TIME '01:02:03'": "01:02:03",
    "TIMESTAMPTZ '2026-01-02 03:04:05+00'": "2026-01-02T03:04:05Z",
    "1.50::DECIMAL(5, 2)": 1.5,
    "100::DECIMAL(5, 0)": 100,
    "170141183460469231731687303715884105727::HUGEINT": "170141183460469231731687303715884105727",
    "'nan'::DOUBLE": None,
    "'ab'::BLOB": "ab",
    "'\\xFFA'::BLOB": "ff41",
    "1.10::DECIMAL(9, 2)": 1.1,
    "12345678901234567890.12::DECIMAL(38, 2)": "12345678901234567890.12",
    "[[1, 2], [3]]": [[1, 2], [3]],
    "{'x': 1, 'y': [2]}": {"x": 1, "y": [2]},
    "MAP {'k': DATE '2026-01-02'}": {"k": "2026-01-02"},
}


def test_values_of_every_type_are_json(capsysbinary):
    columns = ", ".join(f"{expression} AS c{number}" for number, expression in enumerate(VALUES))
    assert run(["sql", STORE, f"SELECT {columns}", "--format", "json"]) == 0
    (row,) = json.loads(capsysbinary.readouterr().out)["rows"]
    assert dict(zip(VALUES, row.values(), strict=True)) == VALUES


def test_columns_of_one_name_are_numbered(capsysbinary):
    assert run(["sql", STORE, "SELECT 1 AS a, 2 AS a, 3 AS a_1", "--format", "json"]) == 0
    assert json.loads(capsysbinary.readouterr().out)["rows"] == [{"a": 1, "a_1": 2, "a_1_1": 3}]


def test_a_statement_may_be_longer_than_the_name_of_a_file(capsysbinary):
    sql = f"SELECT 7 AS n /* {'x' * 5000} */"
    assert run(["sql", STORE, sql, "--format", "json"]) == 0
    assert json.loads(capsysbinary.readouterr().out)["rows"] == [{"n": 7}]


@pytest.mark.parametrize("time", ["'infinity'::TIMESTAMP", "DATE '290000-01-01'"])
def test_a_time_after_the_year_9999_is_one_line_and_code_2(time, capsys):
    assert run(["sql", STORE, f"SELECT {time} AS t"]) == 2
    error = capsys.readouterr().err
    assert "outside the years 1 to 9999" in error
    assert "cast it to text" in error
    assert run(["sql", STORE, f"SELECT ({time})::VARCHAR AS t"]) == 0


def test_times_in_nanoseconds_are_printed_with_all_digits(capsysbinary):
    times = "TIMESTAMP_NS '2020-01-01 00:00:00.123456789' AS a, NULL::TIMESTAMP_NS AS b"
    assert run(["sql", STORE, f"SELECT {times}", "--format", "json"]) == 0
    assert json.loads(capsysbinary.readouterr().out)["rows"] == [{"a": "2020-01-01T00:00:00.123456789", "b": None}]


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


def test_statements_from_stdin_that_cannot_be_split_are_one_line_and_code_2(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("SELECT 1; SELECT 'a"))
    assert run(["sql", STORE]) == 2
    said = capsys.readouterr()
    (line,) = said.err.splitlines()
    assert (said.out, "unterminated string literal" in line) == ("", True)


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


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
def test_python_of_the_page_runs(code, monkeypatch):
    monkeypatch.chdir(ROOT)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(code, "docs/sql.md", "exec"), {})
    assert "40" in out.getvalue() or "store_size" in out.getvalue()


@pytest.mark.parametrize("line", re.findall(r"^mqtool (sql /data/store .*|sql fixtures.*)$", PAGE, re.MULTILINE))
def test_commands_of_the_page_run(line, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    arguments = shlex.split(line.replace("/data/store", STORE))
    assert run(arguments) == 0
    assert "".join(capsys.readouterr())


class Terminal:
    """`mqtool sql` on a terminal of its own."""

    def __init__(self, home: Path) -> None:
        self.master, slave = pty.openpty()
        command = [sys.executable, "-m", "mqtool", "sql", STORE, "--format", "csv"]
        settings = {"XDG_STATE_HOME": str(home), "TERM": "dumb", "NO_COLOR": "1"}
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=os.environ | settings, close_fds=True
        )
        os.close(slave)
        self.text = ""

    def until(self, words: str) -> str:
        """Reads to some words, and returns what came since they were last waited for."""
        ends = time.monotonic() + 60
        while words not in self.text:
            assert time.monotonic() < ends, self.text
            if select.select([self.master], [], [], 1)[0]:
                self.text += os.read(self.master, 4096).decode()
        before, _, self.text = self.text.partition(words)
        return before

    def type(self, line: str) -> None:
        os.write(self.master, line.encode())


def test_the_prompt_answers_goes_on_after_mistakes_completes_and_remembers(tmp_path):
    terminal = Terminal(tmp_path)
    assert ".help lists the commands" in terminal.until("mqtool> ")
    terminal.type("SELECT count(*) AS n\n")
    terminal.until("...> ")
    terminal.type("FROM topics WHERE topic = 'Orders';\n")
    assert "n\r\n1\r\n" in terminal.until("mqtool> ")
    terminal.type("SELECT tpoic FROM messages;\n")
    assert 'column "tpoic" not found' in terminal.until("mqtool> ")
    terminal.type("SELECT count(*) AS all FROM index_ent\t;\n")
    assert "index_entries" in terminal.until("mqtool> ")
    terminal.type(".tables\n")
    assert "queue_units" in terminal.until("mqtool> ")
    terminal.type(".schema topics\n")
    assert "\r\ntopic,VARCHAR," in terminal.until("mqtool> ")
    terminal.type(".mode line\n")
    terminal.until("mqtool> ")
    terminal.type("SELECT 1 AS a, NULL AS b, 'x' AS long_name;\n")
    assert "\r\na          1\r\nlong_name  x\r\n" in terminal.until("mqtool> ")
    terminal.type(".mode lines\n")
    assert "expected one of line, table, wide" in terminal.until("mqtool> ")
    terminal.type(".what\n")
    assert ".schema TABLE" in terminal.until("mqtool> ")
    terminal.type("exit\n")
    assert terminal.process.wait(60) == 0
    os.close(terminal.master)
    assert "tpoic" in (tmp_path / "mqtool" / "sql_history").read_text()


def test_a_store_that_is_cut_meanwhile_is_one_line(tmp_path, capsys, monkeypatch):
    store = copy_store("orders-5.5.0", tmp_path)
    opened = Reading.items

    def cut(reading, path):
        for segment in sorted((store / "commitlog").iterdir())[1:]:
            os.truncate(segment, 100)
        return opened(reading, path)

    monkeypatch.setattr(Reading, "items", cut)
    code = run(["sql", str(store), "SELECT count(*) FROM messages"])
    said = capsys.readouterr()
    assert code == 1
    (line,) = said.err.splitlines()
    assert "damaged range(s) of the log were skipped" in line


def test_typed_statements_end_with_a_semicolon_and_an_interrupt_drops_what_was_begun(monkeypatch):
    typed = iter(["SELECT 1", KeyboardInterrupt, "", ";", "SELECT", " 2;", "SELECT 3", EOFError])
    prompts = []

    def entered(prompt):
        prompts.append(prompt)
        given = next(typed)
        if isinstance(given, str):
            return given
        raise given

    monkeypatch.setattr("builtins.input", entered)
    assert list(sql_prompt._typed()) == ["SELECT\n 2;"]
    assert prompts == ["mqtool> ", "  ...> ", *["mqtool> "] * 3, "  ...> ", "mqtool> ", "  ...> "]


def test_a_typed_exit_ends_the_prompt(monkeypatch):
    typed = iter(["SELECT 1;", "EXIT;"])
    monkeypatch.setattr("builtins.input", lambda _: next(typed))
    assert list(sql_prompt._typed()) == ["SELECT 1;"]


def test_a_value_of_another_type_is_its_text():
    assert _plain(uuid.UUID(int=7)) == "00000000-0000-0000-0000-000000000007"
