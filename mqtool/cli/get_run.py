"""What `mqtool get` does once its options are read."""

from pathlib import Path

from mqtool.cli import kind_run
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Invocation, note
from mqtool.cli.message_rows import MessageRows
from mqtool.cli.message_view import MessageView
from mqtool.cli.options import Body
from mqtool.cli.output import Output
from mqtool.cli.report import Report
from mqtool.errors import CorruptionError
from mqtool.siblings.registry import recognise
from mqtool.store import Store, open_store
from mqtool.store.address import Resolved, resolve


def run(invocation: Invocation, path: Path, config: Path | None, addresses: list[str], view: MessageView) -> ExitCode:
    """Prints the messages at all addresses, in their order."""
    kind = recognise(path)
    if kind is not None:
        return kind_run.get(invocation, kind, path, addresses, view)
    rows = view.rows(default=Body.TEXT)
    with open_store(path, config) as store:
        output = Output(invocation, rows.schema, view.format, upright=True)
        return _print(store, addresses, rows, output)


def _print(store: Store, addresses: list[str], rows: MessageRows, output: Output) -> ExitCode:
    report = Report()
    for address in addresses:
        found = _resolve(store, address, report)
        if found is None:
            continue
        if not found.messages:
            note(f"{address}: nothing found: {found.how}")
        elif not found.certain:
            note(f"{address}: {found.how}")
        for damage in found.damage:
            report.damage(damage)
        if not found.messages:
            report.missing()
        for message in found.messages:
            if message.body_problem and not rows.bodies.raw:
                report.say(f"damage: body of the message at {address}: {message.body_problem}")
            output.row(rows.row(message))
    return output.finish(report.code())


def _resolve(store: Store, address: str, report: Report) -> Resolved | None:
    try:
        return resolve(store, address)
    except CorruptionError as error:
        report.say(f"{address}: nothing found: {error}")
        return None
