"""What `mqtool runbook` does once its options are read."""

import sys
from pathlib import Path

from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import JSON_FORMATS, Format, Invocation
from mqtool.cli.output import Output
from mqtool.cli.runbook_schema import RUNBOOK, RUNBOOK_LIST, RUNBOOK_PAGE
from mqtool.errors import StoreError, UsageError
from mqtool.repair.runbooks import RUNBOOKS, Protocol, Request, Runbook, page
from mqtool.repair.runbooks import run as run_book
from mqtool.repair.runbooks.protocol import REFUSED, SKIPPED
from mqtool.store.real_path import is_inside


def _book(identity: str) -> Runbook:
    for book in RUNBOOKS.values():
        if identity.upper() == book.id or identity == book.name:
            return book
    raise UsageError(f"{identity!r}: expected one of {', '.join(RUNBOOKS)}; mqtool runbook list")


def show(invocation: Invocation, identity: str | None, output_format: Format) -> ExitCode:
    """Lists all runbooks, or prints the page of one."""
    if identity is None:
        output = Output(invocation, RUNBOOK_LIST, output_format)
        output.rows(
            {"id": book.id, "name": book.name, "symptom": book.symptom[0], "needs": " ".join(book.needs)}
            for book in RUNBOOKS.values()
        )
        return output.finish()
    text = page(_book(identity))
    if output_format in JSON_FORMATS or output_format is Format.CSV:
        document = {"id": _book(identity).id, "name": _book(identity).name, "page": text}
        return Output(invocation, RUNBOOK_PAGE, output_format).document(document)
    sys.stdout.buffer.write(text.encode())
    return ExitCode.OK


def run(
    invocation: Invocation, identity: str, store: Path, request: Request, protocol: Path | None, output_format: Format
) -> ExitCode:
    """Runs one, prints and keeps its protocol."""
    book = _book(identity)
    if protocol is not None and protocol.exists():
        raise UsageError(f"{protocol}: expected a name that is not taken for the protocol")
    if protocol is not None and is_inside(protocol, store):
        raise UsageError(f"{protocol}: lies inside the store {store}; name a file elsewhere")
    found = run_book(book, store, request)
    if protocol is not None:
        try:
            protocol.write_text(found.markdown(), encoding="utf-8")
        except OSError as error:
            raise StoreError(f"cannot be written: {error.strerror}", protocol) from error
    return Output(invocation, RUNBOOK, output_format).document(found.as_dict(), code_of(found))


def code_of(found: Protocol) -> ExitCode:
    """Returns what the run amounts to."""
    status = {step.name: step.status for step in found.steps}
    if status["detect"] == REFUSED or status.get("gate") == REFUSED:
        return ExitCode.REFUSED
    if status.get("plan") in (REFUSED, SKIPPED) or found.mended is False:
        return ExitCode.NO
    return ExitCode.OK
