"""`mqtool get`: prints the message at an address."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mqtool.cli import cells, options, siblings
from mqtool.cli.damage import DamageReport
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format, note
from mqtool.cli.message_rows import MESSAGE, MessageRows, MessageView
from mqtool.cli.options import Body
from mqtool.cli.output import Output
from mqtool.cli.schema import prints
from mqtool.errors import UnreadableError
from mqtool.siblings.registry import recognise

if TYPE_CHECKING:
    from mqtool.store import Store
    from mqtool.store.find import AddressMatches


HELP = """
mqtool get /data/store 4096 TopicTest/0@17 7F0000010000522B0000000000001000

Print the messages at addresses: a physical offset, TOPIC/QUEUE@OFFSET, an offset message id or a unique key. Both kinds
of id look alike: the first interpretation that finds a message is used, and stderr reports which. Exit code 1 if
nothing is found.

impact: read-only
"""


@prints(MESSAGE, *siblings.MAIN)
def get(
    ctx: typer.Context,
    store: options.StoreArgument,
    address: Annotated[list[str], typer.Argument(metavar="ADDRESS...", help="Offset, place in a queue, or id.")],
    *,
    output_format: options.FormatOption = Format.TABLE,
    body: options.BodyOption = None,
    max_body: options.MaxBodyOption = None,
    raw: options.RawOption = False,
    redact: options.RedactOption = False,
    config: options.ConfigOption = None,
    _zone: options.ZoneOption = cells.DEFAULT_ZONE,
) -> ExitCode:
    """Prints the messages at all addresses, in order."""
    from mqtool.store import open_readable

    view = MessageView(format=output_format, body=body, max_body=max_body, raw=raw, redact=redact)
    kind = recognise(store)
    if kind is not None:
        return siblings.get(ctx.obj, kind, store, address, view)
    rows = view.rows(default=Body.TEXT)
    report = DamageReport()
    with open_readable(store, config) as opened:
        unknown = opened.skip_unreadable()
        output = Output(ctx.obj, rows.schema, view.format, upright=True)
        _print(opened, address, rows, output, report)
        if report.code() is not ExitCode.OK:
            report.unknown([*opened.unlisted_parts(), *unknown])
        return output.finish(report.code())


def _print(store: Store, addresses: list[str], rows: MessageRows, output: Output, report: DamageReport) -> None:
    from mqtool.store.find import helps, not_queued

    for address in addresses:
        resolved = _resolve(store, address, report)
        if resolved is None:
            continue
        if not resolved.messages:
            where = " in what can be read" if store.unlisted else ""
            note(f"{address}: nothing found{where}: {resolved.missing or resolved.method}")
        elif not resolved.is_unambiguous:
            note(f"{address}: {resolved.method}")
        for damage in resolved.damage:
            report.damage(damage)
        if resolved.damage:
            note(helps(store))
        if not resolved.messages:
            report.missing()
        for message in resolved.messages:
            if words := not_queued(store, message):
                note(f"{address}: {words}")
            if message.body_problem and not rows.bodies.raw:
                report.report(f"damage: body of the message at {address}: {message.body_problem}")
            output.row(rows.row(message))


def _resolve(store: Store, address: str, report: DamageReport) -> AddressMatches | None:
    from mqtool.store.find import resolve

    try:
        return resolve(store, address)
    except UnreadableError as error:
        report.unknown([f"cannot read what is at {address}: {error}"])
    return None
