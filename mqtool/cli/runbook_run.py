"""What `mqtool runbook` does once its options are read."""

import sys
from pathlib import Path

from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import JSON_FORMATS, Format, Invocation, note
from mqtool.cli.output import Output
from mqtool.cli.runbook_schema import RUNBOOK, RUNBOOK_LIST, RUNBOOK_MATCH, RUNBOOK_PAGE
from mqtool.cli.selected import require_selected
from mqtool.commands import command, opened
from mqtool.errors import StoreError, UsageError
from mqtool.repair.runbooks import RUNBOOKS, Case, Protocol, Request, book_of, by_code, by_line, by_name, by_store, page
from mqtool.repair.runbooks import run as run_book
from mqtool.repair.runbooks.protocol import REFUSED, SKIPPED
from mqtool.store.real_path import is_inside
from mqtool.store.store import open_store
from mqtool.verify import CATALOGUE


def list_all(invocation: Invocation, output_format: Format) -> ExitCode:
    """Lists all runbooks."""
    output = Output(invocation, RUNBOOK_LIST, output_format)
    output.rows(
        {"id": book.id, "name": book.name, "symptom": book.symptom[0], "needs": " ".join(book.needs)}
        for book in RUNBOOKS.values()
    )
    return output.finish()


def show(invocation: Invocation, identity: str, output_format: Format) -> ExitCode:
    """Prints the page of one."""
    book = book_of(identity)
    text = page(book)
    if output_format in JSON_FORMATS or output_format is Format.CSV:
        document = {"id": book.id, "name": book.name, "page": text}
        return Output(invocation, RUNBOOK_PAGE, output_format).document(document)
    sys.stdout.buffer.write(text.encode())
    return ExitCode.OK


def match(invocation: Invocation, what: str, config: Path | None, output_format: Format) -> ExitCode:
    """Prints the runbooks that fit a store, a code of verify or a line of a log."""
    if what in CATALOGUE:
        found = by_code(what)
        steps = [command("runbook", "show", one.book.id) for one in found]
    elif Path(what[:4096]).exists():
        root = Path(what)
        with open_store(root, config) as store:
            found = by_store(Case(store, Request(config=config)))
        steps = [command("runbook", "run", one.book.id, opened(root, config)) for one in found]
        if len(found) > 1:
            note("run them in this order, and match again after each: one may make the next unnecessary")
    else:
        found = by_name(what) or by_line(what)
        steps = [command("runbook", "show", one.book.id) for one in found]
    if not found:
        remedy = f": {CATALOGUE[what].remedy}" if what in CATALOGUE else ""
        note(f"no runbook fits{remedy}")
    output = Output(invocation, RUNBOOK_MATCH, output_format)
    output.rows(
        {"id": one.book.id, "name": one.book.name, "why": one.why, "next_step": step}
        for one, step in zip(found, steps, strict=True)
    )
    return output.finish(ExitCode.OK if found else ExitCode.NO)


def run(
    invocation: Invocation, identity: str, store: Path, request: Request, protocol: Path | None, output_format: Format
) -> ExitCode:
    """Runs one, prints and keeps its protocol."""
    book = book_of(identity)
    if protocol is not None and protocol.exists():
        raise UsageError(f"{protocol}: expected a name that is not taken for the protocol")
    if protocol is not None and is_inside(protocol, store):
        raise UsageError(f"{protocol}: lies inside the store {store}; name a file elsewhere")
    if request.topics:
        with open_store(store, request.config) as opened_store:
            require_selected([opened_store], request.topics)
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
