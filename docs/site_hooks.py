"""Hooks of the documentation site (mkdocs.yml): navigation, home, commands, pictures, search, links out of docs/.

Pages are written for readers of the repository, too: a link to a file of the repository that is not a page becomes its
name as code, and `![text](pictures/NAME.svg)` becomes the SVG itself, so that its colours follow the site's theme.
"""

import json
import posixpath
import re
from itertools import cycle, groupby
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from mkdocs.structure.files import File, Files
from pymdownx.slugs import slugify

from mqtool import guide, search
from mqtool.cli import reference
from mqtool.cli.commands import COMMANDS
from mqtool.repair.runbooks import RUNBOOKS

ROOT = Path(__file__).resolve().parents[1]
FROM_THE_ROOT = {
    "README.md": "index.md",
    "README.zh-CN.md": "zh/index.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
"""Files of the root that are pages of the site."""
FOR_DEVELOPERS = re.compile(r"\n## (?:Develop|参与开发)\n.*", re.DOTALL)
"""The part of the README that is not on the site's home."""

SECTIONS = {
    f"runbooks/{name}.md": (f"{page.topic}.md", slugify(case="lower")(f"{name} {RUNBOOKS[name].name}", "-"))
    for page in guide.pages()
    for name in reference.RUNBOOK.findall(page.text)
}
"""Runbooks that are a section of a guide rather than a page: the guide and the section's anchor."""

_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#:\s]+)((?:#[^)]*)?)\)")
_PICTURE = re.compile(r"!\[([^\]]*)\]\((?:\.\./|docs/)*pictures/([\w-]+)\.svg\)")
_COMMAND = re.compile(r"\(#mqtool-([\w-]+)\)")
_TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
_HEADING = re.compile(r"<th[^>]*>(.*?)</th>", re.DOTALL)
_WIDE = 3
"""Columns from which on a phone shows the cells of a row below each other, each with its heading."""
_SKIP = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def on_config(config: Any) -> Any:
    """Puts the generated lists of pages into the navigation."""
    lists = {
        "RUNBOOKS": [
            "runbooks/README.md",
            *(page for name in RUNBOOKS if (page := f"runbooks/{name}.md") not in SECTIONS),
        ],
        "COMMANDS": [
            "cli.md",
            *(
                {group: [{name: f"commands/{name}.md"} for name, _ in rows]}
                for group, rows in groupby(COMMANDS.items(), lambda row: row[1].group)
            ),
        ],
    }
    config["nav"] = _filled(config["nav"], lists)
    return config


def on_files(files: Files, config: Any) -> Files:
    """Adds the files of the root, commands and their schemas; removes runbooks that are sections of guides."""
    for page in SECTIONS:
        files.remove(files.src_uris[page])
    for name, page in FROM_THE_ROOT.items():
        text = FOR_DEVELOPERS.sub("", (ROOT / name).read_text("utf-8"))
        files.append(File.generated(config, page, content=text))
    for name in COMMANDS:
        files.append(File.generated(config, f"commands/{name}.md", content=reference.command_page(name)))
    for name, schema in reference.schemas().items():
        files.append(File.generated(config, f"schemas/{name}.json", content=schema))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:  # noqa: ARG001 - MkDocs passes them by name
    """Adds what the code decides; rewrites links and pictures outside of code blocks."""
    if page.file.name in RUNBOOKS:
        markdown = RUNBOOKS[page.file.name].text
    markdown = reference.complete(markdown.replace(reference.EACH_COMMAND, ""))  # each has a page of its own
    markdown = _COMMAND.sub(r"(commands/\1.md)", markdown)
    source = next(
        (name for name, uri in FROM_THE_ROOT.items() if uri == page.file.src_uri), f"docs/{page.file.src_uri}"
    )

    def link(match: re.Match[str]) -> str:
        text, target, anchor = match.groups()
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        uri = FROM_THE_ROOT.get(path, path.removeprefix("docs/") if path.startswith("docs/") else "")
        if uri in SECTIONS:
            uri, section = SECTIONS[uri]
            anchor = f"#{section}"
        file = files.get_file_from_path(uri) if uri.endswith(".md") else None
        if file and file.inclusion.is_included():
            return f"[{text}]({posixpath.relpath(uri, posixpath.dirname(page.file.src_uri) or '.')}{anchor})"
        if (ROOT / path).exists():  # in the repository, but not a page
            return text if "`" in text else f"{text} (`{path}`)"
        return match[0]  # MkDocs reports it

    def picture(match: re.Match[str]) -> str:
        return _inline(match[2], match[1])

    parts = _SKIP.split(markdown)
    return "".join(part if part.startswith("```") else _LINK.sub(link, _PICTURE.sub(picture, part)) for part in parts)


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:  # noqa: ARG001 - as above
    """Marks wide tables, and gives their cells the headings of their columns."""

    def labelled(match: re.Match[str]) -> str:
        headings = [re.sub(r"<[^>]*>", "", text).replace('"', "&quot;") for text in _HEADING.findall(match[0])]
        if len(headings) < _WIDE:
            return match[0]
        labels = cycle(headings)
        table = re.sub("<td", lambda _: f'<td data-label="{next(labels)}"', match[0])
        return table.replace("<table", "<table data-wide", 1)

    return _TABLE.sub(labelled, html)


def on_page_context(context: dict[str, Any], page: Any, config: Any, nav: Any) -> dict[str, Any]:
    """Sets the language of a page, and the same page in each language, or its home, for the theme's selector."""
    uri = page.file.src_uri.removeprefix("zh/")
    config.theme["language"] = "en" if uri == page.file.src_uri else "zh"
    urls = {other.file.src_uri: other.url for other in nav.pages}
    for language in config.extra["alternate"]:
        folder = "zh/" if language["lang"] == "zh" else ""
        language["link"] = urls.get(folder + uri, f"{folder}index.html")
    return context


def on_post_build(config: Any) -> None:
    """Adds the words of `mqtool help` to the search index, and blanks of no width between Chinese words.

    The theme's search box takes the fields and their weights from the index.
    """
    path = Path(config["site_dir"], "search", "search_index.json")
    index = json.loads(path.read_text("utf-8"))
    index["config"]["fields"] |= {"title": {"boost": 3.0}, "words": {"boost": 10.0}}
    words_of = {page.topic: " ".join(search.words_of(page)) for page in guide.pages()}
    for page, (uri, section) in SECTIONS.items():
        words_of[f"{uri.removesuffix('.md')}#{section}"] = words_of[page.removesuffix(".md")]
    for row in index["docs"]:
        name, _, section = row["location"].partition("#")
        topic = name.removesuffix(".html").removesuffix("/index")
        row["boost"] = search.weight_of(topic) ** 2
        row["words"] = escape(words_of.get(f"{topic}#{section}" if section else topic, ""))
        row |= {field: search.segmented(row[field]) for field in ("title", "text", "words")}
    path.write_text(json.dumps(index, ensure_ascii=False, separators=(",", ":")), "utf-8")


def _inline(name: str, alt: str) -> str:
    svg = (ROOT / "docs" / "pictures" / f"{name}.svg").read_text("utf-8")
    width = svg.partition('viewBox="0 0 ')[2].partition(" ")[0]
    label = escape(alt, {'"': "&quot;"})
    opening = f'<svg style="min-width: min(34rem, {width}px)" aria-label="{label}"'
    svg = svg[svg.index("<svg") :].replace("<svg", opening, 1)
    return f'<div class="picture">{" ".join(svg.split())}</div>'


def _filled(nav: Any, lists: dict[str, list[Any]]) -> Any:
    if isinstance(nav, list):
        return [_filled(entry, lists) for entry in nav]
    if isinstance(nav, dict):
        return {
            title: lists.get(entry, entry) if isinstance(entry, str) else _filled(entry, lists)
            for title, entry in nav.items()
        }
    return nav
