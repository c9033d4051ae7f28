"""The `mqtool` program: its commands, loaded when used, and the way every run ends.

A command is one module with one function; `COMMANDS` names it. `run` is the only place that
turns exceptions into exit codes, by the table in `exits`.
"""

import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any, NamedTuple, NoReturn

import typer
from typer.core import TyperGroup

from mqtool.cli.exits import QUIET, ExitCode, Failure, Terminated, failure_of
from mqtool.cli.invocation import JSON_FORMATS, Invocation, note


class Command(NamedTuple):
    """Where a command lives.

    Attributes:
        module: defines a function named like the command, `-` as `_`, and its HELP.
        summary: its line in `mqtool --help`.
    """

    module: str
    summary: str


COMMANDS = {
    "info": Command("mqtool.cli.info", "What is this store? Version, layout, topics, groups, oddities."),
    "dump": Command("mqtool.cli.dump", "Print what a store, a directory or a single file holds."),
    "get": Command("mqtool.cli.get", "Print the message at an offset, or with an id."),
    "formats": Command("mqtool.cli.formats", "List the kinds of stores and files that are known."),
    "find": Command("mqtool.cli.find", "Find messages by key, tag, property, time or body."),
    "explain-start": Command("mqtool.cli.explain_start", "What would a broker do to this store? Its start, dry."),
    "verify": Command("mqtool.cli.verify", "What is wrong with this store, exactly, and what to do?"),
    "checks": Command("mqtool.cli.checks", "What a code of verify means, and what to do about it."),
    "report": Command("mqtool.cli.report_command", "All that verify found on one page of HTML, for a ticket."),
    "diff": Command("mqtool.cli.diff", "What do two stores not have in common?"),
    "rebuild": Command("mqtool.cli.rebuild", "Make queues, index and configuration anew from the CommitLog."),
    "append": Command("mqtool.cli.append", "Append messages to a store, new or old, as a broker would."),
    "recover": Command("mqtool.cli.recover", "Recover a store as a broker does, or without losing a byte."),
    "plan": Command("mqtool.cli.plan", "Work out a change of a store: what it does, as a file to read first."),
    "apply": Command("mqtool.cli.apply", "Carry a plan out; it can be taken back."),
    "undo": Command("mqtool.cli.undo", "Take a change back: the store is as it was, byte for byte."),
    "finalize": Command("mqtool.cli.finalize", "Give the way back up and free its space."),
    "convert": Command("mqtool.cli.convert", "Make a store of another shape, with the same messages."),
    "clean": Command("mqtool.cli.clean", "Which files retention removes, when, and what it takes from consumers."),
    "salvage": Command("mqtool.cli.salvage", "Copy every provable record of a damaged store into a new one."),
    "backup": Command("mqtool.cli.backup", "Back a store up: verified, incremental, also beside a living broker."),
    "restore": Command("mqtool.cli.restore", "Bring a backup back into a new directory."),
    "runbook": Command("mqtool.cli.runbook", "Known troubles: detect, explain, mend, prove, take back."),
    "replay": Command("mqtool.cli.replay", "Store messages again: of a store, JSON Lines or an export."),
    "export": Command("mqtool.cli.export", "Write messages as Parquet, in one go or what is new."),
    "mirror": Command("mqtool.cli.mirror", "Follow a running broker as its slave: a copy, byte for byte."),
    "serve": Command("mqtool.cli.serve", "Serve a store to real clients: broker and name server in one process."),
}

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

_ClickError: type[Exception] = typer.BadParameter.__mro__[2]
"""The base of the parser's own errors; Typer does not export it, and where it lives depends on the release."""


class LazyCommands(Mapping[str, Any]):
    """Name to parsed command; the module is imported when its command is asked for, not to list the names."""

    def __getitem__(self, name: str) -> Any:
        found = COMMANDS[name]
        module = import_module(found.module)
        function = getattr(module, name.replace("-", "_"))
        one = typer.Typer(rich_markup_mode=None, add_completion=False)
        one.command(name, help=module.HELP, short_help=found.summary, context_settings=_CONTEXT)(function)
        return typer.main.get_command(one)

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
        for parameter in self.params:
            # Typer's completion flags default to None, which makes newer releases load pydantic on every run.
            if getattr(parameter, "is_flag", False) and parameter.default is None:
                parameter.default = False

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        """Returns the names in the order of `COMMANDS`."""
        return list(COMMANDS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """Writes the list of commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.summary) for name, command in COMMANDS.items()])


app = typer.Typer(
    name="mqtool",
    cls=LazyGroup,
    rich_markup_mode=None,
    no_args_is_help=True,
    context_settings=_CONTEXT,
    epilog="Data goes to stdout, all else to stderr. Exit codes: docs/exit-codes.md.",
)


def _print_version(value: bool) -> None:
    if value:
        from mqtool.cli.version import lines  # noqa: PLC0415

        typer.echo("\n".join(lines()))
        raise typer.Exit(0)


@app.callback()
def mqtool(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print versions and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Print tracebacks of errors.")] = False,
) -> None:
    """Look into the files of an Apache RocketMQ message store. No JVM, no broker.

    Example: mqtool info /data/rocketmq/store
    """


def run(arguments: Sequence[str]) -> int:
    """Runs mqtool and returns its exit code; the only failures that leave it are bugs in itself.

    Args:
        arguments: without the program's name.
    """
    invocation = Invocation.of(arguments)
    try:
        group = typer.main.get_command(app)
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
        return _end(invocation, error)
    if answer == ExitCode.INTERRUPTED:  # newer releases return it for KeyboardInterrupt
        return _end(invocation, KeyboardInterrupt())
    return int(answer or ExitCode.OK)


def _end(invocation: Invocation, error: BaseException) -> ExitCode:
    failure = _usage(error) if isinstance(error, _ClickError) else failure_of(error)
    if type(error).__name__ == "NoArgsIsHelpError":  # its message is the whole help text
        print(error, file=sys.stderr)  # noqa: T201
        return ExitCode.USAGE
    if invocation.debug:
        import traceback  # noqa: PLC0415

        traceback.print_exception(error)
    try:
        if failure.code is not ExitCode.PIPE_CLOSED:
            _fail_on_stdout(invocation, failure)
    except OSError as closed:
        failure = failure_of(closed)
    if failure.code not in QUIET:
        note(failure.message)
    return failure.code


def _usage(error: Any) -> Failure:
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "mqtool"
    words = error.format_message().replace(": Value error, ", ": ")  # how newer releases of Typer begin some of theirs
    return Failure(ExitCode.USAGE, "usage", f"{words} See '{command} --help'.")


def _fail_on_stdout(invocation: Invocation, failure: Failure) -> None:
    if invocation.output is not None:
        invocation.output.fail(failure)
    elif invocation.format in JSON_FORMATS and failure.code not in QUIET:
        from mqtool.cli.render import JsonLines  # noqa: PLC0415

        sys.stdout.buffer.write(JsonLines().fail(failure))
    sys.stdout.flush()


def _terminate(number: int, frame: object) -> NoReturn:  # noqa: ARG001
    raise Terminated


def main() -> NoReturn:
    """The console script."""
    if sys.stdout is None or sys.stderr is None:  # closed by the caller: there is nowhere to answer to
        sys.exit(ExitCode.IO_ERROR)
    signal.signal(signal.SIGTERM, _terminate)
    code = run(sys.argv[1:])
    if code in {ExitCode.PIPE_CLOSED, ExitCode.IO_ERROR}:
        # What is still buffered cannot be written; the interpreter must not try again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


if __name__ == "__main__":
    main()
