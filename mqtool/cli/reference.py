"""What docs/cli.md and docs/configuration.md leave to the code, and the JSON Schemas of all commands."""

import enum
import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, get_args, get_type_hints

from typer.main import get_command

from mqtool import commands, guide
from mqtool.cli.app import app, leaves
from mqtool.cli.commands import COMMANDS
from mqtool.cli.schema import schema_of

MEANINGS = {
    "--before": "Physical offset; complete segments before it are selected.",
    "--check": "Read back everything that a backup holds.",
    "--config": "The broker's broker.conf; see [where it is found](configuration.md#where-mqtool-finds-it).",
    "--file": "A file of the store.",
    "--flush": "When stored messages are on disk.",
    "--follow": "Wait for new messages and continue.",
    "--format": "Output format; `--json` is short for `--format json`.",
    "--group": "Consumer or producer group.",
    "--jobs": "Parallel workers.",
    "--list": "List one by one what is otherwise counted.",
    "--output": "What is written: a new file or directory, or one that an earlier run wrote.",
    "--release": "RocketMQ release that would start, or whose on-disk format is written.",
    "--state": "Checkpoint file for resuming.",
    "--yes": "Do what was asked without asking for consent.",
}
"""The meaning of options whose help says more about one command; all others have one help text in every command."""


def complete(page: str) -> str:
    """Returns a page of docs/ with the parts of `PARTS` that it announces."""
    for announcement, part in PARTS.items():
        if announcement in page:
            page = page.replace(announcement, "\n".join(part()))
    page = _SYMPTOMS.sub(_symptoms, page)
    return RUNBOOK.sub(_runbook, page)


@cache
def schemas() -> dict[str, str]:
    """Returns the JSON Schema of each command by its name; the subcommands of a group may share one."""
    documents = (schema_of(words, command.callback) for words, command in leaves(get_command(app)))
    return {name: json.dumps(schema, indent=2, ensure_ascii=False) + "\n" for name, schema in documents}


def _symptoms(announced: re.Match[str]) -> str:
    """Returns the table of some runbooks, or of all, with the first symptom of each; in Chinese with all of them."""
    from mqtool.repair.runbooks import RUNBOOKS

    rows = [RUNBOOKS[name] for name in re.findall(r"RB-\d\d", announced[0])] or RUNBOOKS.values()
    if announced[1] == "在这里列出":
        chinese = {page.topic: page.zh for page in guide.pages()}
        lines = (
            f"| {'；'.join(chinese[topic][1:])} | [{row.id}](../../{topic}.md) {chinese[topic][0]} "
            f"| `{commands.command('runbook', 'run', row.id, 'STORE', tuple(row.needs.split()))}` |"
            for row in rows
            if (topic := f"runbooks/{row.id}")
        )
        return "\n".join(["| 症状 | 故障手册 | 命令 |\n|---|---|---|", *lines])
    lines = (f"| {row.symptom[0]} | [{row.id} {row.name}](../runbooks/{row.id}.md) |" for row in rows)
    return "\n".join(["| First symptom | Runbook |\n|---|---|", *lines])


def _runbook(announced: re.Match[str]) -> str:
    """Returns a runbook as a section of a guide."""
    from mqtool.repair.runbooks import RUNBOOKS

    return re.sub(r"^#", "##", RUNBOOKS[announced[1]].text.rstrip(), flags=re.MULTILINE)


def _list_of_commands() -> Iterator[str]:
    yield "| Command | What it does |\n|---|---|"
    yield from (f"| [`mqtool {name}`](#mqtool-{name}) | {row.summary} |" for name, row in COMMANDS.items())


def command_page(name: str) -> str:
    """Returns the page of one command on the site."""
    group: Any = get_command(app)
    guides = (f"Guide: [{page.title}](../{name}.md)." for page in guide.pages() if page.topic == name)
    return "\n".join([*_sections(name, group.commands[name]), *guides]).removeprefix("#")


def _commands() -> Iterator[str]:
    group: Any = get_command(app)
    for name in COMMANDS:
        yield from _sections(name, group.commands[name])


def _sections(name: str, command: Any) -> Iterator[str]:
    """Yields the lines of a command and of its subcommands."""
    example, *rest = (command.help or "").strip().split("\n\n")
    yield f"## mqtool {name}\n"
    yield f"```bash\n{example}\n```\n"
    yield "\n\n".join(rest) + "\n"
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    if arguments:
        yield "| Argument | |\n|---|---|"
        yield from (f"| `{param.metavar or param.name.upper()}` | {_cell(param.help)} |" for param in arguments)
        yield ""
    if options := _own_options(command):
        hints = get_type_hints(command.callback)
        yield "| Option | | Default |\n|---|---|---|"
        for option in options:
            meaning = _cell(option.help) + _choices(hints.get(option.name))
            yield f"| {_spelling(option)} | {meaning} | {_default(option)} |"
        yield ""
    for word, inner in getattr(command, "commands", {}).items():
        yield from _sections(f"{name} {word}", inner)


def _all_options() -> Iterator[str]:
    """Yields the table of all options and the commands that have them."""
    users: dict[str, dict[str, None]] = {}
    first: dict[str, Any] = {}
    for words, command in leaves(get_command(app)):
        for option in _own_options(command):
            long = next(text for text in option.opts if text.startswith("--"))
            users.setdefault(long, {})[words[0]] = None
            first.setdefault(long, option)
    yield "## All options\n"
    yield "An option means the same in every command that has it.\n"
    yield "| Option | Meaning | Commands |\n|---|---|---|"
    for long in sorted(users):
        meaning = MEANINGS.get(long, first[long].help)
        yield f"| {_spelling(first[long])} | {_cell(meaning)} | {', '.join(users[long])} |"


def _own_options(command: Any) -> list[Any]:
    return [param for param in command.params if param.param_type_name == "option" and param.name != "help"]


def _spelling(option: Any) -> str:
    """Returns the names of an option and what it takes."""
    names = ", ".join(f"`{name}`" for name in sorted(option.opts, key=len))
    return f"{names} {option.metavar}" if option.metavar else names


def _choices(hint: Any) -> str:
    """Returns the values of an option that takes one of a few."""
    kinds = [kind for kind in (hint, *get_args(hint)) if isinstance(kind, type) and issubclass(kind, enum.Enum)]
    return " One of " + ", ".join(f"`{value.value}`" for value in kinds[0]) + "." if kinds else ""


def _default(option: Any) -> str:
    value = option.default
    return "" if value in (None, False) or callable(value) else f"`{getattr(value, 'value', value)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _keys() -> Iterator[str]:
    """Yields the table of the keys of broker.conf: those that a string of the code names, with the packages that do."""
    from importlib.resources import files

    from mqtool.formats.release import V5_5
    from mqtool.server.broker.config import DEFAULTS
    from mqtool.store.config.broker_keys import KEYS, LEGACY_KEYS, default_of
    from mqtool.store.config.rules import DELAY_LEVELS_KEY

    values = DEFAULTS | {DELAY_LEVELS_KEY: default_of(DELAY_LEVELS_KEY, V5_5) or ""}
    users: dict[str, set[str]] = {}
    known = KEYS.keys() | LEGACY_KEYS.keys()
    for (package, *names), source in guide.texts(files("mqtool"), ".py"):
        if names and names[-1] != "broker_keys":
            for key in known & set(re.findall(r'"(\w+)"', source)):
                users.setdefault(key, set()).add(package)
    yield "| Key | Type | Default in `serve` | Used by |\n|---|---|---|---|"
    for key in sorted(users, key=str.lower):
        value = f"`{values[key]}`" if values.get(key) else ""
        kind = KEYS[LEGACY_KEYS.get(key, key)].value
        yield f"| `{key}` | {kind} | {value} | {', '.join(sorted(users[key]))} |"
    yield "\nMisspelt in old releases, and ignored by brokers since 4.7:\n"
    yield "| Old key | Key |\n|---|---|"
    yield from (f"| `{old}` | `{new}` |" for old, new in LEGACY_KEYS.items())


EACH_COMMAND = "> `mqtool help cli` describes each command here."
PARTS = {
    "> `mqtool help cli` lists the commands here.": _list_of_commands,
    EACH_COMMAND: _commands,
    "> `mqtool help cli` lists all options here.": _all_options,
    "> `mqtool help configuration` lists the keys here.": _keys,
}
"""What a page says in the place of a part, for whoever reads the file as it is."""
RUNBOOK = re.compile(r"^> `mqtool runbook show (RB-\d\d)` is here\.$", re.MULTILINE)
_SYMPTOMS = re.compile(r"^> `mqtool runbook list` (lists |在这里列出).+[.。]$", re.MULTILINE)
