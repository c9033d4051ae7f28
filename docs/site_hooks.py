"""Hooks of the documentation site (mkdocs.yml): navigation, links to files outside of docs/, and inline pictures.

Pages are written for readers of the repository, too: a link to a file of the repository that is not a page becomes its
name as code, and `![text](pictures/NAME.svg)` becomes the SVG itself, so that its colours follow the site's theme.
"""

import posixpath
import re
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from mkdocs.structure.files import File, Files

from mqtool.cli import reference
from mqtool.repair.runbooks import RUNBOOKS

ROOT = Path(__file__).resolve().parents[1]
FROM_THE_ROOT = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "SECURITY.md": "security.md"}
"""Files of the root that are pages of the site."""

_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#:\s]+)((?:#[^)]*)?)\)")
_PICTURE = re.compile(r"!\[([^\]]*)\]\((?:\.\./)*pictures/([\w-]+)\.svg\)")
_SKIP = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def on_config(config: Any) -> Any:
    """Puts the generated lists of pages into the navigation."""
    lists = {
        "RUNBOOKS": ["runbooks/README.md", *sorted(_pages("runbooks/RB-*.md"))],
        "DECISIONS": ["decisions/README.md", *sorted(_pages("decisions/0*.md"))],
    }
    config["nav"] = [*_filled(config["nav"], lists), {"Project": list(FROM_THE_ROOT.values())}]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Adds the files of the root and the schemas of the commands."""
    for name, page in FROM_THE_ROOT.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text("utf-8")))
    for name, schema in reference.schemas().items():
        files.append(File.generated(config, f"schemas/{name}.json", content=schema))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:  # noqa: ARG001 - MkDocs passes them by name
    """Adds what the code decides; rewrites links and pictures outside of code blocks."""
    markdown = RUNBOOKS[page.file.name].text if page.file.name in RUNBOOKS else reference.complete(markdown)
    source = next(
        (name for name, uri in FROM_THE_ROOT.items() if uri == page.file.src_uri), f"docs/{page.file.src_uri}"
    )

    def link(match: re.Match[str]) -> str:
        text, target, anchor = match.groups()
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        uri = FROM_THE_ROOT.get(path, path.removeprefix("docs/") if path.startswith("docs/") else "")
        if uri.endswith(".md") and files.get_file_from_path(uri):
            return f"[{text}]({posixpath.relpath(uri, posixpath.dirname(page.file.src_uri) or '.')}{anchor})"
        if (ROOT / path).exists():  # in the repository, but not a page
            return text if "`" in text else f"{text} (`{path}`)"
        return match[0]  # MkDocs reports it

    def picture(match: re.Match[str]) -> str:
        return _inline(match[2], match[1])

    parts = _SKIP.split(markdown)
    return "".join(part if part.startswith("```") else _LINK.sub(link, _PICTURE.sub(picture, part)) for part in parts)


def _inline(name: str, alt: str) -> str:
    svg = (ROOT / "docs" / "pictures" / f"{name}.svg").read_text("utf-8")
    svg = svg[svg.index("<svg") :].replace("<svg", f'<svg aria-label="{escape(alt, {chr(34): "&quot;"})}"', 1)
    return f'<div class="picture">{" ".join(svg.split())}</div>'


def _pages(pattern: str) -> list[str]:
    return [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").glob(pattern)]


def _filled(nav: Any, lists: dict[str, list[str]]) -> Any:
    if isinstance(nav, list):
        return [_filled(entry, lists) for entry in nav]
    if isinstance(nav, dict):
        return {
            title: lists.get(entry, entry) if isinstance(entry, str) else _filled(entry, lists)
            for title, entry in nav.items()
        }
    return nav
