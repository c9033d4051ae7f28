"""Command lines that mqtool suggests to the user. All of them are built here, quoted for a POSIX shell."""

import os
import shlex
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

PLAN_FILE = "plan.json"
"""Output file of a suggested `mqtool plan`."""


WITHOUT_CONFIG = frozenset({"apply", "discard-undo", "undo"})
"""Commands without `--config`: a plan and a journal contain the keys."""
WITH_RELEASE = frozenset({"explain-start", "repair", "runbook match", "runbook run", "verify"})
"""Commands whose `--release` is the release that would be started."""


class Opened(Struct, frozen=True):
    """A store, and the options that shaped the answer about it. A command line gets those that its command takes."""

    root: "str | Path"  # as the user named it
    config: object = None  # the value of `--config`; see `with_config`
    release: str | None = None  # the value of `--release` where it is the release that would be started

    def words_for(self, name: str) -> tuple[str, ...]:
        """Returns the words that open the store again as it was opened, for a command such as `runbook run`."""
        config = () if name in WITHOUT_CONFIG else with_config(self.config)
        release = ("--release", self.release) if self.release and name in WITH_RELEASE else ()
        return (path_word(self.root), *config, *release)

    def named_like(self, given: Path) -> "Opened":
        """Returns the same with paths below the working directory relative to it, if `given` is a relative path."""
        return self if given.is_absolute() else replace(self, root=_near(self.root), config=_near(self.config))


def command(*words: object) -> str:
    """Returns the command line `mqtool WORDS…`; a tuple stands for its items, a store for its root and options."""
    return shlex.join(["mqtool", *_flat(words)])


def with_config(config: object) -> tuple[str, ...]:
    """Returns the option `--config`, or nothing for keys passed from Python or if there is no configuration."""
    return ("--config", path_word(config)) if isinstance(config, str | Path) else ()


def path_word(path: "str | Path") -> str:
    """Returns a path as a word that no command parses as an option."""
    text = str(path)
    return f"./{text}" if text.startswith("-") else text


def fill(template: str, values: Mapping[str, object]) -> str:
    """Returns a command line with values substituted for `{name}`, each a word of its own in the template.

    A value is a word, a tuple of words, or None, which also removes the option before the placeholder.
    """
    words: list[object] = []
    for word in template.split():
        value = values[word[1:-1]] if word.startswith("{") else word
        if value is not None:
            words.append(value)
        elif str(words[-1]).startswith("-"):
            words.pop()
    return shlex.join(_flat(tuple(words)))


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


def put_in_place(new: Path, root: Path) -> tuple[str, ...]:
    """Returns the commands that move a store aside and put a new one, written by this user, in its place.

    They begin with `give_to_owner`.
    """
    named = root if root.name not in ("", "..") else root.resolve()
    names = (named.with_name(f"{named.name}.old{number or ''}") for number in range(1000))
    aside = next(name for name in names if not name.exists())
    moves = ["mv", path_word(named), path_word(aside)], ["mv", path_word(new), path_word(named)]
    return (*give_to_owner(new, root), *map(shlex.join, moves))


def give_to_owner(new: Path, root: Path) -> tuple[str, ...]:
    """Returns the command that gives a store, written by this user, to the owner of another one, if that is not he."""
    words = ["chown", "-R", f"--reference={root}", path_word(new)]
    return (shlex.join(words),) if root.stat().st_uid != os.geteuid() else ()


def new_store_command(opened: Opened) -> str:
    """Returns the command that copies every intact record into a new store, where no repair in place is enough."""
    return command("repair", opened, "-o", new_directory(Path(opened.root)))


def _near(path: Any) -> Any:
    is_below = isinstance(path, str | Path) and Path(path).is_relative_to(Path.cwd())
    return Path(path).relative_to(Path.cwd()) if is_below else path


def _flat(words: tuple[object, ...], before: tuple[str, ...] = ()) -> list[str]:
    """Returns the words one by one."""
    flat: list[str] = []
    for word in words:
        if isinstance(word, tuple):
            flat += _flat(word, (*before, *flat))
        elif isinstance(word, Opened):
            flat += word.words_for(_name((*before, *flat)))
        else:
            flat.append(path_word(word) if isinstance(word, Path) else str(word))
    return flat


def _name(words: tuple[str, ...]) -> str:
    """Returns the name of the command that the first words of a line call: `verify`, `runbook run`."""
    after = words[len(words) - words[::-1].index("mqtool") :] if "mqtool" in words else words
    return " ".join(after[: 2 if after[0] in ("plan", "runbook") else 1])
