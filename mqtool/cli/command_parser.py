"""Commands as they are parsed and as their help shows them."""

import sys
from typing import Any

from typer.core import TyperCommand, TyperGroup

from mqtool.cli.invocation import FORMAT_OPTIONS, JSON_OPTION
from mqtool.cli.options import GENERAL

_UNTIMED = ("serve", "mirror")
"""Commands that run until they are stopped, and log on stderr."""
_ARGUMENTS, _OPTIONS = "Arguments", "Options"


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
