"""A topic or queue that does not exist is an error in every command that selects by it."""

import pytest

from mqtool.cli.exits import ExitCode
from tests.support.stores import copy_store, tree_digest

COMMANDS = [
    "dump {store}",
    "dump {store} --format jsonl",
    "find {store} --key k0",
    "export {store} --output {out}",
    "replay {store} --into {out}",
    "rebuild consumequeue {store} --output {out}",
    "plan rebuild consumequeue {store} --output {out}",
    "plan redact {store} --output {out}",
]
TOPIC_ONLY = [
    "verify {store}",
    "report {store} --output {out}",
    "plan undelete {store} --output {out}",
    "runbook run RB-10 {store} --protocol {out}",
    "runbook run RB-16 {store} -o {out}",
]


@pytest.mark.parametrize("select", [["--topic", "TYPO"], ["--topic", "Orders", "--queue", "99"]], ids=str)
@pytest.mark.parametrize("command", COMMANDS)
def test_what_does_not_exist_cannot_be_selected(mqtool, tmp_path, command, select):
    root, out = copy_store("orders-4.9.7", tmp_path), tmp_path / "out"
    before = tree_digest(root)
    result = mqtool(*command.format(store=root, out=out).split(), *select)
    assert result.code == ExitCode.NO, result.stderr
    assert ("'TYPO'" if select[1] == "TYPO" else "queue 99") in result.stderr
    assert f"mqtool info {root}" in result.stderr
    assert not out.exists()
    assert tree_digest(root) == before


@pytest.mark.parametrize("command", TOPIC_ONLY)
def test_a_topic_that_does_not_exist_is_neither_clean_nor_without_symptoms(mqtool, tmp_path, command):
    root, out = copy_store("orders-4.9.7", tmp_path), tmp_path / "out"
    result = mqtool(*command.format(store=root, out=out).split(), "--topic", "TYPO")
    assert (result.code, "'TYPO'" in result.stderr, out.exists()) == (ExitCode.NO, True, False)


@pytest.mark.parametrize("address", ["0/0", "Orders/0", "Orders@3", "Orders/0@x", "Orders/zero@3"])
def test_a_malformed_address_shows_the_grammar(mqtool, tmp_path, address):
    result = mqtool("get", copy_store("orders-4.9.7", tmp_path), address)
    assert (result.code, "TOPIC/QUEUE@OFFSET" in result.stderr) == (ExitCode.USAGE, True)
