"""What `mqtool help` and the site say follows from the commands; every enum of the options is the library's."""

import json

import pytest
import typer.main
from jsonschema import Draft202012Validator

from mqtool import guide
from mqtool.choices import FileKind
from mqtool.cli.app import app, leaves
from mqtool.cli.entry_rows import SCHEMAS
from mqtool.cli.reference import PARTS, schemas
from mqtool.store.entries import ORDINALS

COMMANDS = dict(leaves(typer.main.get_command(app)))


def test_each_part_has_its_place_in_one_page():
    texts = [page.text for page in guide.pages()]
    assert {part: sum(text.count(part) for text in texts) for part in PARTS} == dict.fromkeys(PARTS, 1)


def test_each_command_has_a_section_with_its_arguments_and_options(mqtool):
    page = mqtool("help", "cli").text
    sections = dict(section.split("\n", 1) for section in page.split("\n## mqtool ")[1:])
    assert not any(part in page for part in PARTS)
    for words, command in COMMANDS.items():
        assert f"| [`mqtool {words[0]}`](#mqtool-{words[0]}) |" in page
        section = sections[" ".join(words)].partition("\n## ")[0]
        assert section.startswith(f"\n```bash\nmqtool {' '.join(words)}")
        for param in command.params:
            name = param.opts[-1] if param.param_type_name == "option" else param.metavar or param.name.upper()
            assert param.name == "help" or f"`{name}`" in section, (words, name)


def test_options_and_keys_are_described_as_a_hand_would(mqtool):
    options = "| `-n`, `--limit` N | Stop after N rows. | dump, find, replay |"
    key, old = "| `brokerRole` | String | `ASYNC_MASTER` | ", "| `mapedFileSizeCommitLog` | `mappedFileSizeCommitLog` |"
    assert options in mqtool("help", "cli").text.splitlines()
    keys = mqtool("help", "configuration").text.splitlines()
    assert old in keys
    assert [line.endswith(" server |") for line in keys if line.startswith(key)] == [True]
    assert not any(line.startswith("| `ackThreadPoolQueueCapacity`") for line in keys), "no code reads it"


def test_a_guide_has_its_runbook_as_a_section(mqtool):
    page, runbook = mqtool("help", "disk-full").text, mqtool("help", "rb-11").text
    assert "\n## RB-11 The disk is full and the broker deletes nothing\n" in page
    assert all(line in page for line in runbook.splitlines() if line.startswith(("- ", "1. ")))


def test_words_of_a_part_are_found(mqtool):
    assert mqtool("help", "mapedFileSizeCommitLog", "--format", "json").document["rows"][0]["topic"] == "configuration"


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_format_help_prints_the_schema(mqtool, words):
    schema = mqtool(*words, "--format", "help").document
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == Draft202012Validator.META_SCHEMA["$id"]
    assert schema == json.loads(schemas()["plan" if words[0] == "plan" else "-".join(words)])


def test_every_kind_of_file_but_the_log_has_a_schema():
    assert set(SCHEMAS) == {kind.value for kind in FileKind} - {"commit-log"}


def test_rows_are_numbered_by_one_of_their_columns():
    for kind, ordinal in ORDINALS.items():
        assert ordinal in [column.name for column in SCHEMAS[kind].columns]
