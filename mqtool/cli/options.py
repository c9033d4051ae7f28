"""Options that several commands share, one spelling, meaning and help text each; files and workers that they name."""

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import typer

from mqtool.choices import Compat
from mqtool.cli import cells
from mqtool.cli.invocation import FORMAT_OPTIONS, Format, note
from mqtool.errors import UsageError

SELECTION = "Selection"

OUTPUT = "Output"

WORK = "Work"

GENERAL = "General"
"""Panel that is last in every help."""

_MAX_KEYS = 20
"""Unknown keys of a configuration that are reported."""

_Format = TypeVar("_Format", bound=StrEnum)

StoreArgument = Annotated[Path, typer.Argument(metavar="STORE", help="Root directory of a store (storePathRootDir).")]

MAX_JOBS = 1024
"""Of `--jobs`: the system's semaphores have a limit, and more worker processes help nobody."""

SPARK = "Spark"

LOCAL = "local[*]"

SMALL = 128 << 20
"""Bytes of the CommitLog up to which further processes cost more time than they save."""


def format_option(words: str) -> Any:
    """Returns `--format` with its help."""
    return option(*FORMAT_OPTIONS, panel=OUTPUT, is_eager=True, callback=schema_if_help, help=words)


def is_dash(path: Path) -> bool:
    """Whether a path is `-`: stdin or stdout."""
    return str(path) == "-"


def is_there(word: str) -> bool:
    """Whether a word of the command line, which may be a whole statement or line of a log, names an existing file."""
    return os.path.exists(word)  # noqa: PTH110 - Path.exists raises for more bytes than a name has


def read_input(path: Path, limit: int) -> bytes:
    """Returns the content of a file, a pipe, or stdin for `-`; raises UsageError if it is more than `limit` bytes."""
    from mqtool.store.files import read_file

    if is_dash(path):
        data = sys.stdin.buffer.read(limit + 1)
    elif path.is_fifo():
        with path.open("rb") as pipe:
            data = pipe.read(limit + 1)
    else:
        return read_file(path, limit)
    if len(data) > limit:
        raise UsageError(f"{path}: expected at most {limit} bytes")
    return data


def check_result_file(store: Path, file: Path) -> None:
    """Raises UsageError if a file to be written is in the store, or is a device that it would replace."""
    from mqtool.store.paths import is_inside, require_regular

    require_regular(file)
    if is_inside(file, store):
        raise UsageError(f"{file}: this is inside the store, which is only read; name a file elsewhere")


class Body(StrEnum):
    """Values of `--body`."""

    NONE = "none"
    TEXT = "text"
    HEX = "hex"
    BASE64 = "base64"
    JSON = "json"


class Duplicates(StrEnum):
    """Values of `--duplicates`."""

    REFUSE = "refuse"
    APPEND = "append"


class Flush(StrEnum):
    """Values of `--flush`."""

    SYNC = "sync"
    ASYNC = "async"


class Include(StrEnum):
    """Values of `--include`."""

    COMMITTED = "committed"
    ALL = "all"


class ProgressMode(StrEnum):
    """Values of `--progress`."""

    AUTO = "auto"
    NONE = "none"
    JSON = "json"


class RebuildTarget(StrEnum):
    """Values of WHAT of `rebuild` and `plan rebuild`."""

    CONSUMEQUEUE = "consumequeue"
    INDEX = "index"
    METADATA = "metadata"
    TIMER = "timer"
    ALL = "all"


class DamageMode(StrEnum):
    """Values of `--damage`."""

    STDERR = "stderr"
    ROWS = "rows"


def schema_if_help(ctx: typer.Context, value: _Format) -> _Format:
    """Callback of `--format`: prints the JSON Schema of the command's output and ends if the value is help."""
    if value == "help" and not ctx.resilient_parsing:
        _print_schema(ctx)
        raise typer.Exit(0)
    return value


def _print_schema(ctx: typer.Context) -> None:
    from mqtool.cli.render import encode
    from mqtool.cli.schema import schema_of

    _, schema = schema_of(tuple(ctx.command_path.split()[1:]), ctx.command.callback)
    sys.stdout.buffer.write(encode(schema, indent=True) + b"\n")


def option(*names: str, help: str, panel: str | None = None, **more: Any) -> Any:  # noqa: A002 - Typer's own word
    """Returns a Typer option, in a panel of the help."""
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


def _read_keys(path: Path | None) -> Path | None:
    """Prints a line for each key that no broker reads, and for each value that a broker misreads; returns the path.

    The command itself reports a file that cannot be read.
    """
    if path is not None:
        from mqtool.errors import StoreError
        from mqtool.store.config import broker_config

        with contextlib.suppress(StoreError):
            config = broker_config.load(path)
            for words in [*config.unread_keys(), *config.misread()][:_MAX_KEYS]:
                note(f"{path}: {words}")
    return path


def _find_config(ctx: typer.Context, path: Path | None) -> Path | None:
    """Returns the file of `--config`, or the one that the broker of the store uses; see `_read_keys`."""
    store = ctx.params.get("store") or ctx.params.get("what")
    if path is None and store and is_there(str(store)) and not ctx.resilient_parsing:
        from mqtool.store.config import broker_config

        path = broker_config.find(Path(str(store)))
    return _read_keys(path)


SourceConfigOption = Annotated[
    Path | None,
    option(
        "--source-config", metavar="FILE", panel=GENERAL, help="broker.conf of the store SOURCE.", callback=_read_keys
    ),
]


ConfigOption = Annotated[
    Path | None,
    option(
        "--config",
        metavar="FILE",
        panel=GENERAL,
        help="broker.conf of the store; overrides what is detected from the files.",
        callback=_read_keys,
    ),
]


FoundConfigOption = Annotated[
    Path | None,
    option(
        "--config",
        metavar="FILE",
        panel=GENERAL,
        help="broker.conf of the store. Default: the one found where brokers keep it.",
        callback=_find_config,
    ),
]


FormatOption = Annotated[
    Format,
    format_option("Output format; --json is short for json; help prints the JSON Schema of the output."),
]


def _check_output(value: Any) -> Any:
    """Refuses a format in the place of a file name, and a URL where only a path is possible."""
    if str(value) in set(Format):
        raise UsageError(f"-o names what is written, and {value} is a format: give --format {value}, or another name")
    if isinstance(value, Path) and re.fullmatch(r"[a-z][a-z0-9]+:", value.parts[0] if value.parts else ""):
        raise UsageError(f"{value}: expected a path, found a URL; only `mqtool export` writes to object storage")
    return value


def output_option(words: str) -> Any:
    """Returns `--output` with its help."""
    return option("--output", "-o", metavar="PATH", callback=_check_output, help=words)


def jobs_option(words: str = "Parallel workers. Default: one for each core.", panel: str | None = None) -> Any:
    """Returns `--jobs` with its help, in a panel of the help."""
    return option("--jobs", "-j", metavar="N", min=1, max=MAX_JOBS, panel=panel, help=words)


def continuing_state_option(panel: str | None = None) -> Any:
    """Returns `--state` of a command that continues where it was interrupted, in a panel of its help."""
    return option("--state", metavar="FILE", panel=panel, help="Checkpoint file: run again with it to continue.")


def copies_option(panel: str | None = None) -> Any:
    """Returns `--with`, in a panel of the help."""
    words = "Another copy of the same log; repeatable, the best one first."
    return option("--with", metavar="STORE", panel=panel, help=words)


def include_option(panel: str) -> Any:
    """Returns `--include`, in a panel of the help."""
    return option("--include", panel=panel, help="Records that consumers can see, or half and system records too.")


def group_option(groups: str = "Consumer group", panel: str = SELECTION) -> Any:
    """Returns `--group`, with the kind of group that it names, in a panel of the help."""
    return option("--group", "-g", metavar="GLOB", panel=panel, help=f"{groups}; may be repeated.")


JobsOption = Annotated[
    int | None, jobs_option("Parallel workers. Default: one for small stores, else one for each core.", panel=WORK)
]


ThrottleOption = Annotated[
    str | None, option("--throttle", metavar="SIZE", panel=WORK, help="Read at most SIZE bytes a second, e.g. 50M.")
]


DebugOption = Annotated[bool, option("--debug", panel=GENERAL, help="Print tracebacks of errors.")]


ProgressOption = Annotated[
    ProgressMode, option("--progress", panel=OUTPUT, help="On stderr: a bar on a terminal, JSON lines, or nothing.")
]


def release_option(words: str, panel: str | None = None) -> Any:
    """Returns `--release` with its help; it takes every version of a known release."""
    return option("--release", metavar="X.Y", panel=panel, help=words, parser=_release)


def release_words(release: object, evidence: str, *, has_option: bool = True) -> str:
    """Returns the sentence that states which release is assumed, why, and how to choose another."""
    return f"release {release} is {evidence}{'; --release states another' if has_option else ''}"


@contextmanager
def stated_release(
    root: Path,
    config: Any,
    given: Compat | None = None,
    *,
    has_option: bool = True,
    state: Callable[[str], None] = note,
) -> Iterator[None]:
    """States which release is assumed for a store, unless it was given, once the work with the store has succeeded.

    The files are read before the work, which may change them; `config` is the store's configuration or its file.
    """
    from mqtool.recovery.predict import detect_version

    version = detect_version(root, config) if given is None else None
    yield
    if version is not None:
        state(release_words(version.release, version.assumption, has_option=has_option))


def _release(text: str) -> Compat:
    from mqtool.errors import UsageError
    from mqtool.formats.release import release_of

    try:
        return Compat(str(release_of(text)))
    except UsageError:
        raise typer.BadParameter(f"{text!r} is not one of {', '.join(map(repr, map(str, Compat)))}.") from None


StartedReleaseOption = Annotated[
    Compat | None, release_option("Release that would be started. Default: the detected one.")
]
UsedOption = Annotated[
    int | None,
    option("--used", metavar="PERCENT", min=0, max=100, help="Disk usage to assume; `clean` then only predicts."),
]
DuplicatesOption = Annotated[
    Duplicates, option("--duplicates", help="If the store already has the first messages: write nothing, or append.")
]


RangeOption = Annotated[
    str | None,
    option(
        "--offset",
        metavar="RANGE",
        panel=SELECTION,
        help="start, end, N, +N, -N, @time, or two of them as A:B, half-open.",
    ),
]


TimeOption = Annotated[
    str | None,
    option(
        "--time",
        metavar="A..B",
        panel=SELECTION,
        help="Store time, half-open: RFC 3339 or ms since the epoch; or 7d, today, yesterday, 'last week'.",
    ),
]


ZoneOption = Annotated[
    str,
    option(
        "--tz",
        metavar="ZONE",
        panel=GENERAL,
        callback=cells.choose_zone,
        help="Zone of times, both given and in tables: UTC, local, or a name like Europe/Berlin.",
    ),
]


def _topic_option() -> Any:
    return option("--topic", "-t", metavar="GLOB", panel=SELECTION, help="Topic; may be repeated.")


TopicOption = Annotated[list[str] | None, _topic_option()]


TopicsOption = Annotated[list[str], _topic_option()]


QueueOption = Annotated[int | None, option("--queue", "-q", metavar="ID", panel=SELECTION, help="Queue id.")]


TagOption = Annotated[list[str] | None, option("--tag", metavar="TAG", panel=SELECTION, help="Tag; may be repeated.")]


KeyOption = Annotated[
    list[str] | None, option("--key", "-k", metavar="KEY", panel=SELECTION, help="One word of KEYS; may be repeated.")
]


UniqueKeyOption = Annotated[
    list[str] | None, option("--unique-key", metavar="ID", panel=SELECTION, help="UNIQ_KEY; may be repeated.")
]


PropertyOption = Annotated[
    list[str] | None,
    option("--property", "-p", metavar="NAME=VALUE", panel=SELECTION, help="User property; all given must match."),
]


GrepOption = Annotated[
    str | None, option("--grep", metavar="REGEX", panel=SELECTION, help="Regular expression over the decoded body.")
]


LimitOption = Annotated[
    int | None, option("--limit", "-n", metavar="N", panel=SELECTION, help="Stop after N rows.", min=0)
]


def max_bytes_option(panel: str) -> Any:
    """Returns `--max-bytes`, in a panel of the help."""
    return option("--max-bytes", metavar="SIZE", panel=panel, help="Stop before the records exceed SIZE, e.g. 10M.")


MaxBytesOption = Annotated[str | None, max_bytes_option(SELECTION)]


BodyOption = Annotated[
    Body | None,
    option(
        "--body",
        panel=OUTPUT,
        show_default=False,
        help="Body format; text falls back to base64. Default: none in tables, else text.",
    ),
]


MaxBodyOption = Annotated[
    str | None, option("--max-body", metavar="SIZE", panel=OUTPUT, help="Print at most SIZE bytes of each body.")
]


DamageOption = Annotated[
    DamageMode, option("--damage", panel=OUTPUT, help="Where to report damage: on stderr, or as rows of the output.")
]


RawOption = Annotated[bool, option("--raw", panel=OUTPUT, help="Print bodies as stored, without decompressing them.")]


RedactOption = Annotated[
    bool, option("--redact", panel=OUTPUT, help="Replace bodies, property values, ids and hosts by salted hashes.")
]


SparkOption = Annotated[bool, option("--spark", panel=SPARK, help="Run the tasks on Spark (needs Java 17).")]


MasterOption = Annotated[
    str, option("--master", metavar="URL", panel=SPARK, help="local[*], spark://HOST:PORT, yarn, k8s://…")
]


ConfOption = Annotated[
    list[str] | None, option("--conf", metavar="NAME=VALUE", panel=SPARK, help="Spark setting; may be repeated.")
]


class OnSpark(NamedTuple):
    """Where Spark runs."""

    master: str  # URL
    settings: dict[str, str]  # name to value


def on_spark(spark: bool, master: str, conf: list[str] | None) -> OnSpark | None:
    """Returns the values of the three options, None without `--spark`; raises UsageError if they do not go together."""
    if not spark and (conf or master != LOCAL):
        raise UsageError("--master and --conf need --spark; add it")
    wrong = next((text for text in conf or () if not all(text.partition("=")[::2])), None)
    if wrong is not None:
        raise UsageError(f"--conf {wrong!r}: expected NAME=VALUE")
    return OnSpark(master, dict(text.partition("=")[::2] for text in conf or ())) if spark else None


@contextmanager
def spark_session(where: OnSpark) -> Iterator[Any]:
    """Starts a session and stops it.

    Raises UsageError if the master's name is invalid; UnavailableError if pyspark or Java is missing, or Java is too
    old; SparkJobError if Spark does not start, or does not reach the master.
    """
    from mqtool.spark.session import build

    session = build(where.master, where.settings)
    try:
        yield session
    finally:
        session.stop()


def workers(jobs: int | None, log_bytes: int) -> int:
    """Returns `--jobs`; the default is one for a small log, otherwise one for each processor."""
    from mqtool.jobs.pool import available

    return jobs or (1 if log_bytes < SMALL else available())
