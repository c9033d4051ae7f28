"""docs/architecture.md and CONTRIBUTING.md describe this tree: the drawing of the layers, and every name and path."""

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.house.modules import PACKAGE, ROOT
from tests.house.test_layers import ALLOWED, BASE

ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
LAYERS = next(
    block for block in re.findall(r"```mermaid\n(.*?)```", ARCHITECTURE, re.DOTALL) if "flowchart TD" in block
)
BOXES = {name: set(text.partition(":")[0].split(", ")) for name, text in re.findall(r'(\w+)\["(.*?)"\]', LAYERS)}
BOX_OF = {layer: box for box, layers in BOXES.items() for layer in layers}
DRAWN = set(ALLOWED) - BASE - {"__init__", "__main__"}


def arrows() -> Iterator[tuple[str, str]]:
    for line in LAYERS.splitlines():
        groups = [re.findall(r"\w+", part) for part in line.split("-->")]
        for first, second in pairwise(groups):
            yield from ((one, other) for one in first for other in second)


def below(box: str) -> set[str]:
    """The boxes that are reached from one."""
    found: set[str] = set()
    ahead = [box]
    while ahead:
        at = ahead.pop()
        following = {other for one, other in arrows() if one == at} - found
        found |= following
        ahead += following
    return found


def test_every_layer_is_drawn_once():
    assert sorted(BOX_OF) == sorted(DRAWN)
    assert sum(map(len, BOXES.values())) == len(DRAWN)


def test_every_arrow_is_an_import_that_is_allowed():
    assert [
        f"{one} --> {other}"
        for one, other in arrows()
        if not any(ALLOWED[layer] & BOXES[other] for layer in BOXES[one])
    ] == []


@pytest.mark.parametrize("layer", sorted(DRAWN))
def test_every_import_that_is_allowed_follows_from_arrows(layer):
    box = BOX_OF[layer]
    reached = {box, *below(box)}
    assert {other for other in ALLOWED[layer] & DRAWN if BOX_OF[other] not in reached} == set()
    assert box not in below(box)


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md", "tests/README.md"])
def test_every_path_that_a_page_names_exists(page):
    words = re.findall(
        r"`((?:mqtool|tests|docs|fixtures|benchmarks|deploy|proto)/[^`\s:]*)", (ROOT / page).read_text("utf-8")
    )
    assert len(words) > 3
    patterns = [re.sub(r"\{[^}]*\}|[A-Z]{4,}", "*", word.rstrip("/")) for word in words]
    assert [word for word, pattern in zip(words, patterns, strict=True) if not list(ROOT.glob(pattern))] == []


def test_every_module_and_function_that_the_architecture_names_exists():
    layers = "|".join(sorted(set(ALLOWED) - {"__init__", "__main__"}))
    names = set(re.findall(rf"\b(?:{layers})(?:\.(?!md)[a-z_]+)+", ARCHITECTURE))
    assert len(names) > 30
    assert [name for name in sorted(names) if not _exists(name.split("."))] == []


def _exists(parts: list[str]) -> bool:
    for count in range(len(parts), 0, -1):
        path = PACKAGE.joinpath(*parts[:count])
        if path.is_dir() and count == len(parts):
            return True
        for source in filter(Path.is_file, (path.with_suffix(".py"), path.with_suffix(".pyx"))):
            text = source.read_text("utf-8")
            return all(re.search(rf"\b{name}\b", text) for name in parts[count:])
    return False
