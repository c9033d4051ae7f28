"""The `mqtool` program: its commands, loaded on use, and the end of every run.

`mqtool.cli.commands` lists the commands. Only `run` turns exceptions into exit codes, by the table in `exits`.

Since 0.27 Typer converts every value by pydantic, which takes a tenth of a second to load. `convert_plainly`
does the same for the usual kinds of values and leaves everything else, such as wrong values, to Typer.
"""

import atexit
import functools
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from mqtool.cli.commands import ALIASES, COMMANDS
from mqtool.cli.exits import QUIET, ExitCode, Failure, Terminated, failure_of
from mqtool.cli.invocation import FORMAT_OPTIONS, JSON_FORMATS, JSON_OPTION, Invocation, note
from mqtool.cli.options import GENERAL, DebugOption

_UNTIMED = ("serve", "mirror")
"""Commands that run until they are stopped, and log on stderr."""
_ARGUMENTS, _OPTIONS = "Arguments", "Options"
_DIGITS = frozenset("0123456789")
_MAX_DIGITS = 18


class Command(TyperCommand):
    """A command that takes `--json` where it takes `--format`, and whose help has a section for each panel."""

    def make_parser(self, ctx: Any) -> Any:
        """Returns the parser of the command's words."""
        parser: Any = super().make_parser(ctx)
        for param in self.get_params(ctx):
            if FORMAT_OPTIONS[0] in param.opts:
                parser.add_option(param, [JSON_OPTION], param.name, action="store_const", const="json")
        return parser

    def invoke(self, ctx: Any) -> Any:
        """Runs the command; without a bar of its own, a terminal shows how long it takes."""
        words = ctx.command_path.partition(" ")[2]
        if words in _UNTIMED or any(param.name == "progress" for param in self.params) or not sys.stderr.isatty():
            return super().invoke(ctx)
        from mqtool.cli.progress import Elapsed

        with Elapsed(words):
            return super().invoke(ctx)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes arguments and options, panel by panel."""
        sections: dict[str, list[tuple[str, str]]] = {_ARGUMENTS: [], _OPTIONS: []}
        general = []
        for param in self.get_params(ctx):
            is_argument, panel = param.param_type_name == "argument", getattr(param, "rich_help_panel", None)
            record = param.get_help_record(ctx)
            if record is None:
                continue
            if param.name == "help" or panel == GENERAL:
                general.append(record)
            else:
                sections.setdefault(panel or (_ARGUMENTS if is_argument else _OPTIONS), []).append(record)
        for name, records in {**sections, GENERAL: general}.items():
            if records:
                with formatter.section(name):
                    formatter.write_dl(records)


class VerbGroup(TyperGroup):
    """A group of commands whose help lists each with all of its summary."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes the list of commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.commands[name].short_help) for name in self.list_commands(ctx)])


def convert_plainly(command: Any) -> None:
    """Makes the parameters of a parsed command convert plain values themselves, as older releases of Typer do."""
    help_option = command.get_help_option  # is made when it is asked for
    command.get_help_option = lambda context: _converting(help_option(context))
    for parameter in command.params:
        _converting(parameter)


def _converting(parameter: Any) -> Any:
    if getattr(parameter, "_runtime_param", 0) is None and hasattr(parameter, "type_descriptor"):
        parameter._runtime_param = _Conversion(parameter)
    return parameter


class _Conversion:
    """Wraps the conversion that Typer would use for a parameter."""

    def __init__(self, parameter: Any) -> None:
        self._parameter = parameter

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Returns a value as the command takes it."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        about = param.type_descriptor
        if about.file_annotation is None and about.parameter_info.parser is None and not param.multiple:
            converted = _plain(value, about.annotation, about.parameter_info) if param.nargs == 1 else None
            if converted is not None:
                return converted
        self._parameter._runtime_param = None
        return self._parameter.get_runtime_param().coerce(value, param=param, ctx=ctx)


def _plain(value: Any, kind: Any, about: Any) -> Any:
    """Converts a plain value; None if that takes more."""
    if not isinstance(kind, type):
        return None
    if kind is str:
        return value if isinstance(value, str) else None
    if issubclass(kind, Enum):
        if isinstance(value, kind):
            return value
        return next((member for member in kind if member.value == value), None) if about.case_sensitive else None
    if kind is Path:
        return _path(value, about)
    if kind is int and isinstance(value, str) and len(value) <= _MAX_DIGITS and _DIGITS.issuperset(value):
        value = int(value) if value else None
    if kind in (int, float, bool) and type(value) is kind:
        minimum, maximum = about.min, about.max
        return value if (minimum is None or value >= minimum) and (maximum is None or value <= maximum) else None
    return None


def _path(value: Any, about: Any) -> Path | None:
    """Returns a path if the only condition on it is that an existing file is readable."""
    is_restricted = about.exists or about.writable or about.resolve_path or about.allow_dash or about.path_type
    if is_restricted or not (about.file_okay and about.dir_okay) or not isinstance(value, str | Path):
        return None
    if os.access(value, os.F_OK) and not os.access(value, os.R_OK):
        return None
    return Path(value)


STOPPED = frozenset({ExitCode.INTERRUPTED, ExitCode.TERMINATED})
PATIENCE = 0.5
"""Seconds in which the reader of stdout has to take the end of the output of a command that was told to stop."""

_LIBRARIES = ("numpy", "pyarrow", "orjson", "zstandard", "lz4", "typer")
"""Whose versions `--version` prints."""
_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

_ClickError: type[Exception] = typer.BadParameter.__mro__[2]
"""The base of the parser's own errors; Typer does not export it, and where it lives depends on the release."""

_BY_ARROW = ("pyarrow", "mqtool")
"""pyarrow's own code has no frame: its caller seems to import. Spark and clients of object stores need both modules."""

_UNUSED = {"pandas": _BY_ARROW, "dateutil": _BY_ARROW, "typing_extensions": ("msgspec",)}
"""Modules that are not imported, by which packages; they take them for not installed."""


@functools.cache
def parsed_command(name: str, function: Any, help_text: str, summary: str) -> Any:
    """Returns the command of a function; the help text replaces its docstring."""
    typer_app = typer.Typer(rich_markup_mode=None, add_completion=False)
    typer_app.command(name, cls=Command, help=help_text, short_help=summary, context_settings=_CONTEXT)(function)
    command = typer.main.get_command(typer_app)
    command.params.append(_debug_option())
    convert_plainly(command)
    return command


def _debug_option() -> Any:
    """Returns `--debug` for a command whose function does not take it: `Invocation` has found it before."""
    typer_app = typer.Typer(add_completion=False)
    typer_app.command()(_taking_debug)
    option = typer.main.get_command(typer_app).params[0]
    option.expose_value = False
    return option


def _taking_debug(*, debug: DebugOption = False) -> None:
    """The function of a command with no other option."""


def _group(name: str, text: str, subcommands: Mapping[str, Any]) -> Any:
    """Returns a command with subcommands: functions by verb, each with its help."""
    typer_app = typer.Typer(
        name=name,
        cls=VerbGroup,
        help=text,
        rich_markup_mode=None,
        add_completion=False,
        no_args_is_help=True,
        context_settings=_CONTEXT,
    )
    typer_app.callback()(lambda: None)
    group: Any = typer.main.get_command(typer_app)
    for verb, (function, help_text) in subcommands.items():
        summary = help_text.strip().split("\n\n")[1].replace("\n", " ").partition(". ")[0].rstrip(".") + "."
        group.add_command(parsed_command(verb, function, help_text, summary), verb)
    return group


def leaves(command: Any, *words: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yields the words and the command of everything that can be run."""
    if not hasattr(command, "commands"):
        yield words, command
        return
    for name, inner in command.commands.items():
        yield from leaves(inner, *words, name)


class LazyCommands(Mapping[str, Any]):
    """Maps names to parsed commands; a module is imported when its command is used, not to list the names."""

    def __getitem__(self, name: str) -> Any:
        entry = COMMANDS[name]
        module = import_module(entry.module or f"mqtool.cli.commands.{name.replace('-', '_')}")
        if hasattr(module, "SUBCOMMANDS"):
            return _group(name, module.HELP, module.SUBCOMMANDS)
        return parsed_command(name, getattr(module, name.replace("-", "_")), module.HELP, entry.summary)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class LazyGroup(TyperGroup):
    """A group that lists its commands without importing them."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        commands: Any = LazyCommands()
        self.commands = commands

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """Returns the names in the order of `COMMANDS`."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Returns the command with a name or an alias."""
        return super().get_command(ctx, ALIASES.get(cmd_name, cmd_name))

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """Writes the list of commands, group by group."""
        for group, members in groupby(COMMANDS.items(), key=lambda item: item[1].group):
            with formatter.section(group):
                formatter.write_dl([(name, command.summary) for name, command in members])


app = typer.Typer(
    name="mqtool",
    cls=LazyGroup,
    rich_markup_mode=None,
    no_args_is_help=True,
    context_settings=_CONTEXT,
    epilog="Data goes to stdout, everything else to stderr. Exit codes: mqtool help exit-codes.",
)


def _print_version(value: bool) -> None:
    if value:
        typer.echo("\n".join(_versions()))
        raise typer.Exit(0)


def _versions() -> Iterator[str]:
    """Yields a line per component: name, version."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    from mqtool import __version__, native

    yield f"mqtool {__version__}"
    yield f"python {platform.python_version()}"
    for name in _LIBRARIES:
        try:
            yield f"{name} {version(name)}"
        except PackageNotFoundError:
            yield f"{name} not installed"
    yield f"native {'compiled' if native.in_use() else 'not compiled' if native.is_enabled else 'switched off'}"


@app.callback()
def mqtool(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print versions and exit.")
    ] = False,
    debug: DebugOption = False,
) -> None:
    """Inspect, repair, export and serve the message store of Apache RocketMQ. No JVM, no broker.

    Example: mqtool info /data/rocketmq/store
    """


def run(arguments: Sequence[str]) -> int:
    """Runs mqtool (arguments without its name) and returns its exit code. Only bugs of mqtool raise exceptions."""
    invocation = Invocation(arguments)
    try:
        group = typer.main.get_command(app)
        convert_plainly(group)
        answer = group.main(args=list(arguments), prog_name="mqtool", standalone_mode=False, obj=invocation)
        sys.stdout.flush()
    except SystemExit as stop:
        # Typer swallows a closed pipe into SystemExit(1); completion scripts end with SystemExit too.
        if isinstance(stop.__context__, BrokenPipeError):
            return _end(invocation, stop.__context__)
        return stop.code if isinstance(stop.code, int) else ExitCode.OK
    except typer.Abort as abort:  # older releases of Typer make it of KeyboardInterrupt, newer ones of EOFError
        return _end(invocation, abort.__cause__ or KeyboardInterrupt())
    except BaseException as error:  # noqa: BLE001 - this is the one place
        try:
            return _end(invocation, error)
        except KeyboardInterrupt as interrupt:
            return _end(invocation, interrupt)
    if answer == ExitCode.INTERRUPTED:  # newer releases return it for KeyboardInterrupt
        return _end(invocation, KeyboardInterrupt())
    return int(answer or ExitCode.OK)


def _end(invocation: Invocation, error: BaseException) -> ExitCode:
    failure = _usage(error) if isinstance(error, _ClickError) else failure_of(error)
    if type(error).__name__ == "NoArgsIsHelpError":  # its message is the whole help text
        print(error, file=sys.stderr)  # noqa: T201
        return ExitCode.USAGE
    if invocation.debug:
        import traceback

        traceback.print_exception(error)
    try:
        if failure.code in STOPPED:
            _end_output_in_time(invocation, failure)
        elif failure.code is not ExitCode.PIPE_CLOSED:
            _fail_on_stdout(invocation, failure)
    except OSError as closed:
        failure = failure_of(closed)
    command = COMMANDS.get(ALIASES.get(invocation.command, invocation.command))
    if failure.code is ExitCode.INTERRUPTED and command is not None:
        note(f"interrupted: {command.interrupted}")
    if failure.code not in QUIET:
        note(failure.message)
    return failure.code


def _usage(error: Any) -> Failure:
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "mqtool"
    message = error.format_message().replace(
        ": Value error, ", ": "
    )  # how newer releases of Typer begin some of theirs
    return Failure(ExitCode.USAGE, "usage", f"{message} See '{command} --help'.")


def _fail_on_stdout(invocation: Invocation, failure: Failure) -> None:
    if invocation.output is not None:
        invocation.output.fail(failure)
    elif invocation.format in JSON_FORMATS and failure.code not in QUIET:
        from mqtool.cli.render import JsonLines

        sys.stdout.buffer.write(JsonLines().fail(failure))
    sys.stdout.flush()


class _NobodyReadsError(Exception):
    """The reader of stdout has closed it."""


def _end_output_in_time(invocation: Invocation, failure: Failure) -> None:
    """Ends the output of an interrupted command without waiting for a reader that has stopped reading."""
    if threading.current_thread() is not threading.main_thread():
        _fail_on_stdout(invocation, failure)
        return

    def give_up(number: int, frame: object) -> NoReturn:  # noqa: ARG001
        raise _NobodyReadsError

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    try:
        _fail_on_stdout(invocation, failure)
    except _NobodyReadsError:
        pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _terminate(number: int, frame: object) -> NoReturn:  # noqa: ARG001
    raise Terminated


_AGAIN_S = 0.05


def _interrupt_again(unraisable: Any) -> None:
    """Repeats a Ctrl-C that could only be reported because it arrived in a callback, such as one of fork."""
    if isinstance(unraisable.exc_value, KeyboardInterrupt):
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
    else:
        sys.__unraisablehook__(unraisable)


class _Hidden:
    """A finder of modules; the class for them would take 3 ms to import."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:  # noqa: ARG002 - an interface
        if fullname in _UNUSED and _importer().partition(".")[0] in _UNUSED[fullname]:
            raise ModuleNotFoundError("mqtool does without it", name=fullname)


def _importer() -> str:
    """Returns the name of the module that imports another one at this moment."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("importlib"):
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", ""))


def hide_unused_imports() -> None:
    """Makes pyarrow work as if pandas and dateutil were not installed, and msgspec without typing_extensions.

    Where they are, pyarrow imports pandas for the first array (0.4 s) and dateutil for the first scalar, and takes any
    exception for a failed import: a Ctrl-C at that moment would be lost. msgspec needs typing_extensions, which takes
    3 ms to import, only to decode documents.
    """
    sys.meta_path.insert(0, _Hidden())


def _leave(codes: Sequence[int]) -> None:
    """Ends the process with the last of the codes; freeing its objects first would take up to 12 ms."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(codes[-1])


def main() -> NoReturn:
    """The console script."""
    if sys.stdout is None or sys.stderr is None:  # closed by the caller: there is nowhere to answer to
        sys.exit(ExitCode.IO_ERROR)
    codes: list[int] = [ExitCode.BUG]
    atexit.register(_leave, codes)  # first of all, so that it is called last, when all threads have ended
    # numpy's linear algebra, of which nothing is used here, would start a thread for each processor: 0.1 s of one.
    # Child processes and local Spark workers inherit this, and use none either.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    hide_unused_imports()
    signal.signal(signal.SIGTERM, _terminate)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    sys.unraisablehook = _interrupt_again
    code = run(sys.argv[1:])
    if code in {ExitCode.PIPE_CLOSED, ExitCode.IO_ERROR, *STOPPED}:
        # What is still buffered cannot be written; the interpreter must not try again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if code in STOPPED and any(thread is not threading.main_thread() for thread in threading.enumerate()):
        os._exit(code)  # the interpreter would wait for a thread that did not end when it was told to
    codes.append(code)
    sys.exit(code)


if __name__ == "__main__":
    main()
