"""Command lines that mqtool suggests to the user. All of them are built here, quoted for a POSIX shell."""

import shlex
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

PLAN_FILE = "plan.json"
"""Output file of a suggested `mqtool plan`."""


def command(*words: object) -> str:
    """Returns the command line `mqtool WORDS…`; a tuple is expanded to its items."""
    return shlex.join(["mqtool", *_flat(words)])


def opened(root: "str | Path", config: object = None) -> tuple[str, ...]:
    """Returns the words that open a store again as it was opened.

    Args:
        root: as the user named it.
        config: the value of `--config`; see `with_config`.
    """
    return (path_word(root), *with_config(config))


def with_config(config: object) -> tuple[str, ...]:
    """Returns the option `--config`, or nothing for keys passed from Python or if there is no configuration."""
    return ("--config", path_word(config)) if isinstance(config, str | Path) else ()


def path_word(path: "str | Path") -> str:
    """Returns a path as a word that no command parses as an option."""
    text = str(path)
    return f"./{text}" if text.startswith("-") else text


def fill(template: str, values: Mapping[str, object]) -> str:
    """Returns a command line with values substituted for `{name}`.

    Args:
        template: words separated by blanks; each `{name}` is a separate word.
        values: a word, a tuple of words, or None, which also removes the option before the placeholder.
    """
    words: list[str] = []
    for word in template.split():
        value = values[word[1:-1]] if word.startswith("{") else word
        if value is not None:
            words += _flat((value,))
        elif words[-1].startswith("-"):
            words.pop()
    return shlex.join(words)


@cache
def with_extra(extra: str) -> str:
    """Returns how to add an extra to this installation: by a command that uses the same clone or wheel, or by a page.

    The name of the distribution is never suggested: it is in no index, so whoever registers it there could run
    programs on brokers.
    """
    import json  # noqa: PLC0415 - only who lacks an extra needs them
    from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415
    from urllib.parse import urlsplit  # noqa: PLC0415
    from urllib.request import url2pathname  # noqa: PLC0415

    page = f"see `mqtool help install`, extra {extra}"
    try:
        origin = json.loads(distribution("rocketmq-mqtool").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return page
    url = urlsplit(origin.get("url", ""))
    path = Path(url2pathname(url.path))
    if url.scheme != "file" or not path.exists():
        return page
    editable = ["--editable"] if origin.get("dir_info", {}).get("editable") else []
    installer = [sys.executable, "-m", "pip", "install"]
    for tool, words in (("uv/tools", ["uv", "tool"]), ("pipx/venvs", ["pipx"])):
        if f"/{tool}/" in f"{Path(sys.prefix).as_posix()}/":
            installer = [*words, "install", "--force"]
    return f"run `{shlex.join([*installer, *editable, f'{path}[{extra}]'])}`"


def new_directory(root: Path) -> Path:
    """Returns a path next to a store that does not exist yet."""
    named = root if root.name not in ("", "..") else root.resolve()
    names = (named.with_name(f"{named.name}.new{number or ''}") for number in range(1000))
    return next(name for name in names if not name.exists())


def salvage_command(root: Path, config: object = None) -> str:
    """Returns the command that copies every intact record into a new store; see `opened` for `config`."""
    return command("salvage", root, "-o", new_directory(root), with_config(config))


def _flat(words: tuple[object, ...]) -> list[str]:
    flat: list[str] = []
    for word in words:
        if isinstance(word, tuple):
            flat += _flat(word)
        else:
            flat.append(path_word(word) if isinstance(word, Path) else str(word))
    return flat
