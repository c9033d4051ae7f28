"""Commands as they are parsed and as their help shows them.

Since 0.27 Typer converts every value by pydantic, which takes a tenth of a second to load. `convert_plainly`
does the same for the usual kinds of values and leaves everything else, such as wrong values, to Typer.
"""

import os
import sys
from enum import Enum
from pathlib import Path
from typing import Any

from typer.core import TyperCommand, TyperGroup

from mqtool.cli.invocation import FORMAT_OPTIONS, JSON_OPTION
from mqtool.cli.options import GENERAL

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
