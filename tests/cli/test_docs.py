"""docs/cli.md and docs/schemas are what the commands say; every enum of the options is the library's."""

import importlib.util
import json
from pathlib import Path

import pytest
import typer.main
from jsonschema import Draft202012Validator

from mqtool.choices import FileKind
from mqtool.cli.app import app, leaves
from mqtool.cli.entry_rows import SCHEMAS
from mqtool.store.entries import ORDINALS

LEAVES = [words for words, _ in leaves(typer.main.get_command(app))]
ROOT = Path(__file__).resolve().parents[2]


def generator():
    spec = importlib.util.spec_from_file_location("generate_cli", ROOT / "docs" / "generate_cli.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_pages_are_up_to_date():
    for name, text in generator().pages().items():
        assert (ROOT / "docs" / name).read_text("utf-8") == text, f"run docs/generate_cli.py: {name}"


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_format_help_prints_the_schema_that_is_checked_in(mqtool, words):
    result = mqtool(*words, "--format", "help")
    assert result.code == 0
    name = "plan" if words[0] == "plan" else "-".join(words)
    assert result.document == json.loads((ROOT / "docs" / "schemas" / f"{name}.json").read_text("utf-8"))


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_a_schema_is_one(mqtool, words):
    schema = mqtool(*words, "--format", "help").document
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == Draft202012Validator.META_SCHEMA["$id"]


def test_every_kind_of_file_but_the_log_has_a_schema():
    assert set(SCHEMAS) == {kind.value for kind in FileKind} - {"commit-log"}


def test_rows_are_numbered_by_one_of_their_columns():
    for kind, ordinal in ORDINALS.items():
        assert ordinal in [column.name for column in SCHEMAS[kind].columns]
