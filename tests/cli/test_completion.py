"""Completion as docs/install.md sets it up, in the shells themselves."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.house.modules import ROOT

pytestmark = pytest.mark.slow
SET_UP = re.findall(
    r"^```sh\n(mkdir .+?)^```$", (ROOT / "docs" / "install.md").read_text("utf-8"), re.MULTILINE | re.DOTALL
)

BASH = """
. ~/.local/share/bash-completion/completions/mqtool
try() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _mqtool_completion mqtool; echo "${COMPREPLY[@]}"; }
try mqtool verif
try mqtool verify --fail
try mqtool runbook run rb-05
"""
FISH = """
complete -C "mqtool verif" | string split -f 1 \\t
complete -C "mqtool verify --fail" | string split -f 1 \\t
complete -C "mqtool runbook run rb-05" | string split -f 1 \\t
"""
ZSH = """
zmodload zsh/zpty
zpty terminal zsh -f -i
zpty -w terminal 'PS1=; fpath=(~/.zfunc $fpath); autoload -Uz compinit; compinit -u'
zpty -w -n terminal $'mqtool verif\\t'
zpty -r terminal shown '*mqtool verify *' && echo verify
zpty -w -n terminal $'--fail\\t'
zpty -r terminal shown '*--fail-on *' && echo --fail-on
zpty -w -n terminal $'\\025mqtool runbook run rb-05\\t'
zpty -r terminal shown '*rb-05 *' && echo rb-05
"""
"""Types into a terminal and waits for what the shell completes."""


@pytest.fixture
def environment(tmp_path) -> dict[str, str]:
    """A home of its own, and a program `mqtool` on the path that is this tree."""
    program = tmp_path / "bin" / "mqtool"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m mqtool "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    return {"HOME": str(tmp_path), "PATH": path, "PYTHONPATH": str(ROOT), "TERM": "dumb", "LANG": "C.UTF-8"}


def run(environment: dict[str, str], *command: str) -> str:
    result = subprocess.run(
        command,
        cwd=environment["HOME"],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


@pytest.mark.parametrize(("shell", "program"), [("bash", BASH), ("zsh", ZSH), ("fish", FISH)])
def test_a_shell_completes_commands_options_and_values(shell, program, environment):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    [commands] = [text for text in SET_UP if f"source_{shell}" in text]
    run(environment, "sh", "-ec", commands)
    options = {"bash": ["--norc"], "zsh": ["-f"], "fish": []}[shell]
    assert run(environment, shell, *options, "-c", program).split() == ["verify", "--fail-on", "rb-05"]


def test_the_page_on_installing_sets_up_three_shells():
    assert len(SET_UP) == 3
