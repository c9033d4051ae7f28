"""What the guides in docs/ show is what the commands print: every `$ mqtool …` on a fixture is run and compared."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.modules import ROOT

GUIDES = ("convert", "diff", "kinds", "rebuild", "report", "verify")
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def examples() -> list[tuple[str, str, list[str]]]:
    """(page, command, lines below it) of every example that names a fixture."""
    found = []
    for name in GUIDES:
        page = ROOT / "docs" / f"{name}.md"
        for block in BLOCK.findall(page.read_text("utf-8") if page.exists() else ""):
            for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                command, *lines = part.rstrip("\n").split("\n")
                if "fixtures/" in command:
                    found.append((name, command, lines))
    return found


@pytest.fixture(scope="module")
def workplace(tmp_path_factory) -> Path:
    """One directory for all examples: one may go on with what another has made."""
    directory = tmp_path_factory.mktemp("guides")
    (directory / "fixtures").symlink_to(ROOT / "fixtures")
    return directory


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.xdist_group("guides")
@pytest.mark.parametrize(
    ("page", "command", "lines"), examples(), ids=[f"{page}-{number}" for number, (page, *_) in enumerate(examples())]
)
def test_an_example_prints_what_the_page_shows(page, command, lines, workplace):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    result = subprocess.run(
        [sys.executable, "-m", *shlex.split(command)],
        cwd=workplace,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode in (0, 1), result.stderr
    pattern = "".join(r"(?:.*\n)*?" if line == "…" else re.escape(line).replace("…", ".*") + r"\n" for line in lines)
    assert re.match(pattern, result.stdout), f"{page}: {command} prints\n{result.stdout[:3000]}"


def test_every_guide_that_is_there_has_examples():
    pages = {name for name in GUIDES if (ROOT / "docs" / f"{name}.md").exists()}
    assert pages == {page for page, *_ in examples()}
