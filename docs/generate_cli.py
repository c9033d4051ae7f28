"""Writes docs/cli.md, configuration.md and docs/schemas from the commands themselves.

`python docs/generate_cli.py` writes; with `--check` it says what is out of date, writes nothing, and exits with 1 if
anything is.
"""

import ast
import enum
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import typer.main  # noqa: E402 - the checkout comes first

from docs.stale_files import write_or_check  # noqa: E402
from mqtool.cli.app import app, leaves  # noqa: E402
from mqtool.cli.commands import COMMANDS  # noqa: E402
from mqtool.cli.schema import schema_of  # noqa: E402
from mqtool.server.broker.config import DEFAULTS  # noqa: E402
from mqtool.store.config.broker_keys import KEYS, LEGACY_KEYS  # noqa: E402

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
}
"""The meaning of options whose help says more about one command; all others have one help text in every command."""

HEAD = """# Commands

Generated from the commands' own help by `python docs/generate_cli.py`. Output:
[JSON output](json-output.md). Results: [exit codes](exit-codes.md). The same from Python: every command calls one
function of the library.

| Command | What it does |
|---|---|
"""

RANGES = """## Ranges and times

`--offset` takes offsets: physical ones of messages; queue offsets, entry numbers or positions in other files. A
range is half-open, `[start, end)`; it is clipped to the existing offsets.

| Form | Meaning |
|---|---|
| `start`, `end` | from the first offset; from the end (with `--follow`: only what is new) |
| `4096` | from offset 4096 |
| `+100`, `-100` | from 100 after the first offset; from 100 before the end |
| `@TIME` | from a store time; messages only |
| `A:B`, `A:`, `:B` | from A up to B, each written as above: `0:4096`, `@TIME:@TIME`, `-100:end` |

`--time A..B` takes store times; either may be missing. A time is RFC 3339 (`2026-11-21T00:33:14.018Z`), milliseconds
since the epoch, or `yyyy-MM-dd#HH:mm:ss:SSS` as in mqadmin. Relative to now, `7d` is seven days ago (also with `s`,
`m`, `h`, `w`), `today`, `yesterday` and `last week` are their first moment; alone, as in `--time yesterday`, they are
the period: the last seven days, that day, Monday to Sunday. A time without a zone is in UTC, and tables print UTC;
`--tz` names another zone for both, such as `Europe/Berlin`, or `local` for that of this machine. Every printed time
says its offset from UTC (`Z` for none). JSON and CSV hold milliseconds since the epoch. Sizes take K, M, G and T,
powers of 1024.
"""

CONFIGURATION_HEAD = """# Configuration keys

The keys of a broker's properties file (`--config broker.conf`, `serve --set KEY=VALUE`) that mqtool uses. They have the
broker's names and defaults. Other keys of the broker are accepted and ignored. `mqtool verify STORE --config
broker.conf` reports keys that no broker reads (`lint-unknown-key`, `lint-legacy-key`).

Values are read as the broker reads them. Blanks after a value belong to it, and only texts are trimmed, from 5.2 on:
`timerWheelEnable=true` with a blank after it is false, and a number with one is ignored, so the default applies. Each
such value is reported (`lint-misread-value`).

Without a file, file sizes and release are detected from the files of the store, and `mqtool info STORE --all` shows
how. A broker does not look at its files: for a size that its file lacks, it takes the default, and it does not start
on files of another size. So what predicts or makes a start (`verify`, `explain-start`, `repair`, `serve`, `append`
and all that writes messages) takes the default too, and names the key to write if the files have another size.

## Where mqtool finds it

`verify`, `explain-start`, `repair`, `plan`, `salvage`, `runbook`, `report` and `clean` look for the file themselves,
because sizes in it decide whether a broker starts. They take the file that a running broker was started with (`-c`);
otherwise `broker.conf`, `conf/broker.conf` and the files of `conf/2m-*` next to the store, or one directory further
up. The `storePathRootDir` of the file must be the store; a file next to the store may leave the key out. A file that
was found is named in the output and in every printed command. If there is none, or more than one, the verdict says
that broker.conf was not checked: pass `--config FILE`.

## Keys
"""


def pages() -> dict[str, str]:
    """Returns path below docs/ and text of every generated file."""
    group: Any = typer.main.get_command(app)
    found = {}
    cli = HEAD + "".join(f"| [`mqtool {name}`](#mqtool-{name}) | {row.summary} |\n" for name, row in COMMANDS.items())
    cli += "\n" + RANGES
    for words, command in leaves(group):
        if len(words) > 1 and f"## mqtool {words[0]}\n" not in cli:
            cli += "\n" + "\n".join(section(words[0], group.commands[words[0]])) + "\n"
        cli += "\n" + "\n".join(section(" ".join(words), command)) + "\n"
        name, schema = schema_of(words, command.callback)
        found[f"schemas/{name}.json"] = json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
    cli += "\n" + "\n".join(all_options(group)) + "\n"
    return {"cli.md": cli, "configuration.md": "\n".join(configuration()), **found}


def all_options(group: Any) -> Iterator[str]:
    """Yields the table of all options and the commands that have them."""
    users: dict[str, dict[str, None]] = {}
    first: dict[str, Any] = {}
    for name in COMMANDS:
        for one in options(group.commands[name]):
            long = next(text for text in one.opts if text.startswith("--"))
            users.setdefault(long, {})[name] = None
            first.setdefault(long, one)
    yield "## All options\n"
    yield "An option means the same in every command that has it.\n"
    yield "| Option | Meaning | Commands |\n|---|---|---|"
    for long in sorted(users):
        meaning = MEANINGS.get(long, first[long].help)
        yield f"| {spelling(first[long])} | {cell(meaning)} | {', '.join(users[long])} |"


def options(command: Any) -> Iterator[Any]:
    """Yields the options of a command and of its subcommands."""
    yield from (one for one in command.params if one.param_type_name == "option" and one.name != "help")
    for inner in getattr(command, "commands", {}).values():
        yield from options(inner)


def configuration() -> Iterator[str]:
    """Yields the page of the keys of broker.conf: those that a string of the code names, with the packages that do."""
    users: dict[str, set[str]] = {}
    known = KEYS.keys() | LEGACY_KEYS.keys()
    for path in sorted((ROOT / "mqtool").glob("*/**/*.py")):
        if path.name != "broker_keys.py":
            package = path.relative_to(ROOT / "mqtool").parts[0]
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in known:
                    users.setdefault(node.value, set()).add(package)
    yield CONFIGURATION_HEAD
    yield "| Key | Type | Default in `serve` | Used by |\n|---|---|---|---|"
    for key in sorted(users, key=str.lower):
        default = f"`{DEFAULTS[key]}`" if DEFAULTS.get(key) else ""
        kind = KEYS[LEGACY_KEYS.get(key, key)].value
        yield f"| `{key}` | {kind} | {default} | {', '.join(sorted(users[key]))} |"
    yield "\nMisspelt in old releases, and ignored by brokers since 4.7:\n"
    yield "| Old key | Key |\n|---|---|"
    yield from (f"| `{old}` | `{new}` |" for old, new in LEGACY_KEYS.items())
    yield ""


def section(name: str, command: Any) -> Iterator[str]:
    """Yields the lines of one command."""
    function = command.callback
    example, *rest = (command.help or "").strip().split("\n\n")
    yield f"## mqtool {name}\n"
    yield f"```bash\n{example}\n```\n"
    yield "\n\n".join(rest) + "\n"
    hints = get_type_hints(function) if function else {}
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    if arguments:
        yield "| Argument | |\n|---|---|"
        yield from (f"| `{one.metavar or one.name.upper()}` | {cell(one.help)} |" for one in arguments)
        yield ""
    if not any(one.param_type_name == "option" and one.name != "help" for one in command.params):
        return
    yield "| Option | | Default |\n|---|---|---|"
    for one in command.params:
        if one.param_type_name == "option" and one.name != "help":
            yield f"| {spelling(one)} | {cell(one.help)}{choices(hints.get(one.name))} | {default(one)} |"


def spelling(option: Any) -> str:
    """Returns the names of an option and what it takes."""
    names = ", ".join(f"`{name}`" for name in sorted(option.opts, key=len))
    return f"{names} {option.metavar}" if option.metavar else names


def choices(hint: Any) -> str:
    """Returns the values of an option that takes one of a few."""
    kinds = [kind for kind in (hint, *get_args(hint)) if isinstance(kind, type) and issubclass(kind, enum.Enum)]
    return " One of " + ", ".join(f"`{value.value}`" for value in kinds[0]) + "." if kinds else ""


def default(option: Any) -> str:
    """Returns an option's default, empty if it has none."""
    value = option.default
    return "" if value in (None, False) or callable(value) else f"`{getattr(value, 'value', value)}`"


def cell(text: str) -> str:
    """Returns text for a cell of a table."""
    return text.replace("|", "\\|")


def main() -> int:
    """Writes or checks the files; returns the exit code."""
    return write_or_check({ROOT / "docs" / name: text for name, text in pages().items()})


if __name__ == "__main__":
    sys.exit(main())
