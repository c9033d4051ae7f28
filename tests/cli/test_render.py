"""The formats: what they look like, what they escape, that they stream."""

import csv
import io
import json

import pytest

from mqtool.cli import cells
from mqtool.cli.document import Listing, blocks, joined, listed
from mqtool.cli.exits import ExitCode, Failure
from mqtool.cli.invocation import Format, note
from mqtool.cli.render import LOOKAHEAD, Csv, JsonDocument, JsonLines, Table, encode
from mqtool.cli.schema import DATA, TABLE, WIDE, Column, OutputSchema

SCHEMA = OutputSchema(
    "things",
    "a thing",
    (
        Column("number", "int64", "n", show=TABLE),
        Column("name", "string", "s", show=TABLE, nullable=True),
        Column("at", "int64", "t", show=WIDE, time=True),
        Column("more", "object", "o", show=DATA),
    ),
    version=7,
)
FIRST = SCHEMA.columns[0]
ROW = {"number": 1, "name": "x", "at": 1700000000123, "more": {"k": "v"}}
FAILURE = Failure(ExitCode.IO_ERROR, "io", "no", "/s")
NASTY = "\x1b[31mred\x1b[0m\r\n\t\x00\x7f\x9b31m\u202egnp\u2028\ud800"


def drawn(renderer, rows, ok=True):
    parts = [renderer.begin(), *(renderer.row(row) for row in rows), renderer.end(ok)]
    return b"".join(parts).decode()


def table(wide=False):
    return Table(SCHEMA.shown(wide), wide=wide)


def upright():
    return Table(SCHEMA.columns, wide=True, upright=True)


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)


def test_a_table_lines_up_numbers_at_the_right_and_text_at_the_left():
    rows = [ROW, {**ROW, "number": 1234567, "name": "a longer one"}, {**ROW, "name": None}]
    assert drawn(table(), rows) == (" number  name\n      1  x\n1234567  a longer one\n      1  -\n")


def test_a_wide_table_has_more_columns_and_prints_times():
    assert drawn(table(wide=True), [ROW]) == "number  name  at\n     1  x     2023-11-14T22:13:20.123Z\n"


def test_a_table_without_rows_has_no_header():
    assert drawn(table(), []) == ""


def test_a_table_fixes_its_widths_after_the_first_rows_and_goes_on_line_by_line():
    renderer = table()
    held = [renderer.row(ROW) for _ in range(LOOKAHEAD - 1)]
    assert set(held) == {b""}
    assert renderer.row(ROW).count(b"\n") == LOOKAHEAD + 1
    assert renderer.row({**ROW, "name": "y" * 50}) == b"     1  " + b"y" * 50 + b"\n"
    assert renderer.end(ok=True) == b""


def test_table_cells_are_cut_and_wide_ones_are_not():
    row = {**ROW, "name": "z" * 2000}
    cut = f"{'z' * 999}… 1001 more characters: --format wide shows all\n"
    assert drawn(table(), [row]).splitlines(keepends=True)[1].endswith(f" {cut}")
    for text in ("a/path/of/many/parts/" * 4 + " and words" * 20, "UNIQ_KEY=" + "F" * 900):
        assert text in drawn(table(), [{**ROW, "name": text}])
    assert "z" * 2000 in drawn(table(wide=True), [row])


def test_words_are_wrapped_to_the_terminal_with_a_hanging_indent(monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    rows = [{"number": 1, "name": "four words and another five"}, {"number": 22, "name": "x"}]
    assert drawn(table(), rows).splitlines() == [
        "number  name",
        "     1  four words and another",
        "          five",
        "    22  x",
    ]


def test_a_row_that_cannot_fit_has_one_field_a_line(monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    rows = [{"number": 1, "name": "y" * 33}, {"number": 2, "name": None}]
    assert drawn(table(), rows) == f"number  1\nname    {'y' * 33}\n\nnumber  2\n"


@pytest.mark.parametrize("columns", [24, 40, 60, 80, 200])
def test_a_line_is_as_long_as_the_terminal_at_most(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    rows = [{"number": number, "name": "some 订单 words " * (number % 9)} for number in range(LOOKAHEAD)]
    assert max(cells.width(line) for line in drawn(table(), rows).splitlines()) <= columns


READ = OutputSchema(
    "read",
    "a document for readers",
    (
        Column("answer", "string", "a", show=TABLE, is_verdict=True),
        Column("next_steps", "array", "c", show=TABLE, label="next", is_command=True),
        Column("already_lost", "int64", "g", show=TABLE, label="lost"),
        Column("log_size", "int64", "s", show=TABLE, is_size=True),
        Column("empty", "string", "e", show=TABLE, nullable=True),
        Column("many", "array", "m", show=TABLE),
        Column("inner", "object", "o", show=TABLE, fields=(Column("rows", "array", "r", show=TABLE, fields=(FIRST,)),)),
    ),
    single=True,
)
VALUE = {
    "answer": "it is not good",
    "next_steps": ["mqtool verify a"],
    "already_lost": 0,
    "log_size": 1 << 20,
    "empty": None,
    "many": [],
    "inner": {"rows": [{"number": 3}]},
}


def test_a_document_is_written_for_a_reader():
    assert joined(blocks(READ.columns, VALUE, wide=False)).decode() == (
        "it is not good\n\nlost      0\nlog size  1.0 MiB\n\nnext: mqtool verify a\n\nInner: rows\n  number\n       3\n"
    )


def test_prose_is_wrapped_and_commands_are_not(monkeypatch):
    monkeypatch.setenv("COLUMNS", "24")
    value = {
        "answer": "one two three four five six",
        "next_steps": ["mqtool verify " + "x" * 30],
        "many": ["a b c " * 5],
    }
    columns = tuple(column for column in READ.columns if column.name in value)
    lines = joined(blocks(columns, value, wide=False)).decode().splitlines()
    assert lines == [
        "one two three four five",
        "    six",
        "",
        "next: mqtool verify " + "x" * 30,
        "",
        "Many",
        "  a b c a b c a b c a b",
        "    c a b c",
    ]


@pytest.mark.parametrize("wide", [False, True])
def test_nothing_in_a_table_can_steer_a_terminal(wide):
    text = drawn(table(wide), [{**ROW, "name": NASTY}])
    assert text.count("\n") == 2
    assert text.replace("\n", "").isprintable()


def test_nothing_in_upright_rows_can_steer_a_terminal():
    text = drawn(upright(), [{**ROW, "name": NASTY, "more": {NASTY: NASTY}}])
    assert text.count("\n") == 4
    assert text.replace("\n", "").isprintable()


@pytest.mark.parametrize("empty", [None, ""])
def test_upright_rows_leave_out_empty_values_and_stand_apart(empty):
    text = drawn(upright(), [{**ROW, "name": empty}, ROW])
    assert text == (
        "number  1\nat      2023-11-14T22:13:20.123Z\nmore    k=v\n"
        "\nnumber  1\nname    x\nat      2023-11-14T22:13:20.123Z\nmore    k=v\n"
    )


def test_wide_characters_take_two_columns():
    rows = [{**ROW, "name": "订单", "number": 1}, {**ROW, "name": "abcd"}]
    columns = (SCHEMA.columns[1], SCHEMA.columns[0])
    assert drawn(Table(columns, wide=True), rows).splitlines() == ["name  number", "订单       1", "abcd       1"]


def test_json_lines_are_one_row_a_line():
    assert drawn(JsonLines(), [ROW, ROW]) == (json.dumps(ROW, separators=(",", ":")) + "\n") * 2


@pytest.mark.parametrize(("rows", "ok"), [([], True), ([ROW], False), ([ROW, ROW], True)])
def test_a_json_document_holds_its_rows_and_how_it_ended(rows, ok):
    document = json.loads(drawn(JsonDocument(SCHEMA.head()), rows, ok))
    assert document == {"schema": "things", "schema_version": 7, "rows": rows, "ok": ok}


def test_a_json_document_takes_ready_lines_among_rows():
    renderer = JsonDocument(SCHEMA.head())
    line = encode(ROW) + b"\n"
    parts = [renderer.begin(), renderer.lines(line * 3), renderer.row(ROW), renderer.lines(line), renderer.end(ok=True)]
    assert json.loads(b"".join(parts))["rows"] == [ROW] * 5


def test_json_of_a_failure_closes_what_has_begun():
    renderer = JsonDocument(SCHEMA.head())
    document = json.loads(renderer.begin() + renderer.row(ROW) + renderer.fail(FAILURE))
    assert document["rows"] == [ROW]
    assert (document["ok"], document["error"]) == (False, {"kind": "io", "message": "no", "path": "/s"})


def test_csv_gives_back_every_value():
    rows = [{**ROW, "name": 'a "quoted", text\nof two lines'}, {**ROW, "name": None}]
    read = list(csv.DictReader(io.StringIO(drawn(Csv(SCHEMA), rows), newline="")))
    assert [row["name"] for row in read] == [rows[0]["name"], ""]
    assert json.loads(read[0]["more"]) == ROW["more"]
    assert read[0]["number"] == "1"


@pytest.mark.parametrize("renderer", [Csv(SCHEMA), table(), upright()], ids=lambda r: type(r).__name__)
def test_only_json_takes_ready_lines(renderer):
    with pytest.raises(TypeError):
        renderer.lines(b"{}\n")


def test_a_lone_surrogate_becomes_a_question_mark_in_json():
    assert json.loads(encode({"a\udc00": ["x\ud800y", 1, None, True]})) == {"a?": ["x?y", 1, None, True]}


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, "1970-01-01T00:00:00.000Z"), (-1, "1969-12-31T23:59:59.999Z"), ((1 << 63) - 1, str((1 << 63) - 1))],
)
def test_a_moment_beyond_the_calendar_stays_a_number(milliseconds, text):
    assert cells.moment(milliseconds) == text


@pytest.mark.parametrize(
    ("text", "limit", "cut"), [("abc", 3, "abc"), ("abcd", 3, "ab…"), ("订单订单", 5, "订单…"), ("a" * 999, 2, "a…")]
)
def test_text_is_cut_to_a_width(text, limit, cut):
    assert cells.clip(text, limit) == cut


def test_an_integer_of_more_than_64_bits_becomes_a_string_of_digits():
    assert json.loads(encode({"a": [1 << 64, (1 << 63) - 1]})) == {"a": [str(1 << 64), (1 << 63) - 1]}


LISTED = OutputSchema(
    "listed",
    "a document with a long array",
    (
        Column("name", "string", "s", show=TABLE),
        Column("rows", "array", "r", show=TABLE, fields=(Column("number", "int64", "n", show=TABLE),)),
    ),
    single=True,
)


@pytest.mark.parametrize("output_format", [Format.JSON, Format.JSONL])
def test_a_listing_that_breaks_off_leaves_json_that_says_why(output_format):
    renderer = listed(LISTED, {"name": "x", "rows": []}, Listing("rows", 9, ()), output_format)
    for numbers in ([], [1], [1, 2]):
        parts = [renderer.begin(), *(renderer.row({"number": number}) for number in numbers), renderer.fail(FAILURE)]
        document = json.loads(b"".join(parts))
        assert (document["ok"], document["error"]["message"], document["name"]) == (False, "no", "x")
        assert document["rows"] == [{"number": number} for number in numbers]
        renderer = listed(LISTED, {"name": "x", "rows": []}, Listing("rows", 9, ()), output_format)


def test_a_listing_is_written_row_by_row():
    rows = [{"number": number} for number in range(LOOKAHEAD + 1)]
    for output_format in (Format.JSON, Format.CSV, Format.TABLE):
        renderer = listed(LISTED, {"name": "x"}, Listing("rows", len(rows), ()), output_format)
        renderer.begin()
        written = [renderer.row(row) for row in rows]
        assert written[-1].strip(), f"{output_format.value} keeps rows back"
        assert len(written[-1]) < 40


def test_a_value_inside_of_others_that_is_missing_is_a_dash():
    assert cells.plain({"a": None, "b": [1, None, True]}) == "a=- b=1, -, yes"


def test_a_note_is_wrapped_on_a_terminal_only(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "40")
    text = "the release is assumed from the files; --release states another"
    lines = []
    for is_terminal in (False, True):
        monkeypatch.setattr("sys.stderr.isatty", lambda is_terminal=is_terminal: is_terminal)
        note(text)
        lines.append(capsys.readouterr().err.splitlines())
    assert lines == [
        [f"mqtool: {text}"],
        ["mqtool: the release is assumed from the", "    files; --release states another"],
    ]
