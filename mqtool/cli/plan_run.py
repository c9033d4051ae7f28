"""What `mqtool plan` does once its options are read."""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mqtool.cli.changes import step_rows
from mqtool.cli.exits import ExitCode
from mqtool.cli.filters import Filters
from mqtool.cli.input_file import is_dash, read_input
from mqtool.cli.invocation import Format, Invocation, note
from mqtool.cli.output import Output
from mqtool.cli.plan_schema import PLAN
from mqtool.cli.selected import require_selected
from mqtool.commands import command
from mqtool.errors import NothingToChangeError, StoreError, UsageError
from mqtool.records.damage import Damage
from mqtool.repair import (
    Change,
    Pad,
    Plan,
    RebuildIndex,
    RebuildMetadata,
    RebuildQueues,
    RebuildTimer,
    Redact,
    RenameSegments,
    SetAside,
    Trim,
    Truncate,
    Undelete,
    make_plan,
)
from mqtool.repair.changes import change_to_json
from mqtool.repair.from_findings import Mending, changes_of, findings_of, left_by
from mqtool.repair.plan import GATES
from mqtool.store.address import resolve
from mqtool.store.real_path import is_inside
from mqtool.store.store import Store, open_store
from mqtool.verify import CATALOGUE, Finding, Severity, verify

_LARGEST = 1 << 28
_FROM, _REPAIR = "from", "repair"
"""Verbs whose changes follow from findings: those of `--from`, or those of verify now."""

Changes = tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Request:
    """What the options said; see `plan`."""

    words: list[str]
    out: Path
    findings: Path | None
    files: list[str]
    at: list[str]
    before: int | None
    filters: Filters
    work_dir: Path | None
    config: Path | None
    damage: list[str] = field(default_factory=list)
    """What could not be looked at, in words."""
    read: list[tuple[str, list[Finding]]] = field(default_factory=list)
    """The findings, once they are read: a pipe can be read only once."""

    def given(self) -> set[str]:
        """Returns the names of the options that narrow a change."""
        chosen = {name for name in ("files", "at", "before") if getattr(self, name) not in (None, [])}
        names = ("topic", "queue", "key", "unique_key", "tag", "time", "grep")
        return chosen | {name for name in names if getattr(self.filters, name) is not None}


def run(invocation: Invocation, request: Request, output_format: Format) -> ExitCode:
    """Plans, writes the plan down and shows it."""
    verb, path = _words(request)
    to_stdout = is_dash(request.out)
    if not to_stdout and is_inside(request.out, path):
        raise UsageError(f"{request.out}: expected a file outside of the store {path}")
    if (
        not to_stdout and request.out.exists()
    ):  # said before the log is read, which can take hours; `open` below decides
        raise UsageError(f"{request.out}: expected a new file, this one exists")
    left: Mending | None = None
    findings: tuple[Finding, ...] = ()
    with open_store(path, request.config) as store:
        require_selected([store], request.filters.topic, request.filters.queue)
        if verb in (_FROM, _REPAIR):
            findings = verify(store).findings if verb == _REPAIR else tuple(_findings(request)[1])
            left = changes_of(store, findings)
            changes: Changes = left.changes
            if not changes:
                raise NothingToChangeError(f"{path}: verify has found nothing that a plan repairs")
        else:
            changes = _VERBS[verb].make(store, request)
    whole = left is not None and not left.again
    after: list[Mending] = []

    def look(root: Path, config: Mapping[str, str]) -> None:
        if left is not None and left.left:
            after.append(left_by(left, findings, root, config))

    made = make_plan(path, changes, config=request.config, work_dir=request.work_dir, must_repair=whole, look=look)
    left = after[0] if after else left
    is_whole = made.complete or bool(after)  # what damage kept from being made is in `left`, if it is an error
    code = ExitCode.OK if is_whole and not request.damage and _is_enough(left) else ExitCode.NO
    document = _document(made, request, left)
    if to_stdout:
        _write_to_stdout(made, document)
        return code
    try:
        with request.out.open("x", encoding="utf-8") as file:
            file.write(made.to_json())
    except FileExistsError as error:
        raise UsageError(f"{request.out}: expected a new file, this one exists") from error
    except OSError as error:
        raise StoreError(f"cannot be written: {error.strerror}", request.out) from error
    return Output(invocation, PLAN, output_format).document(document, code)


def _write_to_stdout(made: Plan, document: dict[str, Any]) -> None:
    """Prints the plan itself; what is worth knowing before it is carried out goes to stderr."""
    sys.stdout.buffer.write(made.to_json().encode())
    sys.stdout.buffer.flush()
    for text in document["notes"]:
        note(text)
    for one in document["left"]:
        note(f"left: {one['code']}: {one['file']}: {one['remedy']}")
    note(f"files that change: {document['files']}; next: {document['next_step']}")


def _is_enough(mending: Mending | None) -> bool:
    """Whether a plan repairs every error, or is the first of two that do."""
    return mending is None or mending.again or all(one.severity is not Severity.ERROR for one in mending.left)


def _words(request: Request) -> tuple[str, Path]:
    """Returns the verb, "" with --from, and the store."""
    words = list(request.words)
    if request.findings is not None:
        if len(words) > 1 or request.given():
            raise UsageError("--from says what to change: give no verb and nothing that narrows it")
        return _FROM, Path(words[0]) if words else Path(_findings(request)[0])
    verb = next((verb for verb in (*_VERBS, _REPAIR) if words[: len(verb.split())] == verb.split()), None)
    if verb is None:
        raise UsageError(f"expected one of {', '.join((_REPAIR, *_VERBS))}, found {' '.join(words[:2])!r}")
    rest = words[len(verb.split()) :]
    if len(rest) != 1:
        raise UsageError(f"{verb}: expected one store, found {len(rest)}")
    odd = request.given() - (_VERBS[verb].options if verb in _VERBS else frozenset())
    if odd:
        raise UsageError(f"{verb}: --{min(odd).replace('_', '-').replace('files', 'file')} does not go with it")
    return verb, Path(rest[0])


def _findings(request: Request) -> tuple[str, list[Finding]]:
    """Returns the store and the findings that `--from` names: a file, a pipe, or `-` for stdin; read once."""
    path = request.findings
    assert path is not None
    if not request.read:
        try:
            request.read.append(findings_of(json.loads(read_input(path, _LARGEST)), path))
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{path}: expected JSON: {error}") from error
    return request.read[0]


def _everything(_store: Store, _request: Request) -> Changes:
    return RebuildQueues(), RebuildIndex(), RebuildMetadata()


def _queues(_: Store, request: Request) -> Changes:
    return (RebuildQueues(tuple(request.filters.topic or ()), request.filters.queue),)


def _index(_: Store, request: Request) -> Changes:
    if len(request.files) > 1:
        raise UsageError("rebuild index: one --file, or none for all")
    return (RebuildIndex(request.files[0] if request.files else None),)


def _metadata(_: Store, request: Request) -> Changes:
    return (RebuildMetadata(tuple(request.files)),)


def _timer(_: Store, _request: Request) -> Changes:
    return (RebuildTimer(),)


def _undelete(_: Store, request: Request) -> Changes:
    if not request.filters.topic:
        raise UsageError("undelete: name the topics with --topic")
    return (Undelete(tuple(request.filters.topic)),)


def _truncate(store: Store, request: Request) -> Changes:
    if not request.at:
        return (Truncate(store.commit_log.max_offset),)
    if len(request.at) > 1 or not request.at[0].isdecimal():
        raise UsageError(f"truncate: expected one physical offset, found --at {' '.join(request.at)}")
    return (Truncate(int(request.at[0])),)


def _redact(store: Store, request: Request) -> Changes:
    offsets = {message.physical_offset for address in request.at for message in resolve(store, address).messages}
    if len(request.at) > len(offsets):
        raise UsageError("redact: no message is at one of the addresses; look with mqtool get")
    log = store.commit_log
    wanted = request.filters.keywords(log.min_offset, log.max_offset)
    if not wanted and not request.at:
        raise UsageError("redact: choose messages with --at, --key, --unique-key, --grep, …")
    if wanted:
        for message in store.messages(**wanted):
            if isinstance(message, Damage):
                request.damage.append(
                    f"damage: physical offsets {message.start} to {message.end} could not be looked at"
                )
            else:
                offsets.add(message.physical_offset)
    return (Redact(tuple(sorted(offsets))),)


def _trim(_: Store, request: Request) -> Changes:
    if request.before is None:
        raise UsageError("trim: say with --before which physical offset stays")
    return (Trim(request.before),)


def _set_aside(store: Store, request: Request) -> Changes:
    return (SetAside(_files(store, request, "set-aside")),)


def _rename(store: Store, request: Request) -> Changes:
    if request.files:
        return (RenameSegments(_files(store, request, "rename-segments")),)
    if not store.layout.misplaced:
        raise UsageError("rename-segments: every segment has the name that its records state")
    return (RenameSegments(tuple(file.path.relative_to(store.path).as_posix() for file in store.layout.misplaced)),)


def _pad(store: Store, request: Request) -> Changes:
    return (Pad(_files(store, request, "pad")),)


def _files(store: Store, request: Request, verb: str) -> tuple[str, ...]:
    """Returns the files that are named, below the store, however they were named."""
    if not request.files:
        raise UsageError(f"{verb}: name the files with --file")
    root = store.path.absolute()
    named = (Path(name).absolute() for name in request.files)
    pairs = zip(request.files, named, strict=True)
    return tuple(path.relative_to(root).as_posix() if path.is_relative_to(root) else name for name, path in pairs)


@dataclass(frozen=True, slots=True)
class _Verb:
    make: Callable[[Store, Request], Changes]
    options: frozenset[str]


def _verb(make: Callable[[Store, Request], Changes], *options: str) -> _Verb:
    return _Verb(make, frozenset(options))


_VERBS = {
    "rebuild all": _verb(_everything),
    "rebuild consumequeue": _verb(_queues, "topic", "queue"),
    "rebuild index": _verb(_index, "files"),
    "rebuild metadata": _verb(_metadata, "files"),
    "rebuild timer": _verb(_timer),
    "undelete": _verb(_undelete, "topic"),
    "truncate": _verb(_truncate, "at"),
    "redact": _verb(_redact, "at", "topic", "queue", "key", "unique_key", "tag", "time", "grep"),
    "trim": _verb(_trim, "before"),
    "set-aside": _verb(_set_aside, "files"),
    "rename-segments": _verb(_rename, "files"),
    "pad": _verb(_pad, "files"),
}


def _document(made: Plan, request: Request, mending: Mending | None) -> dict[str, Any]:
    left = mending.left if mending is not None else ()
    notes = [*made.notes, *request.damage]
    if made.forecast is not None:
        notes.insert(0, f"messages that a start loses: {made.forecast.words}")
    if mending is not None and mending.again:
        notes.append("the end of the log comes first: verify and plan again once this is finalized")
    return {
        "store": made.store,
        "plan": str(request.out),
        "changes": [change_to_json(one) for one in made.changes],
        "complete": made.complete and not left and not request.damage,
        "files": len(made.steps),
        "space": made.space,
        "digest": made.digest,
        "steps": step_rows(made.steps),
        "notes": notes,
        "left": [{"code": one.code, "file": one.file, "remedy": CATALOGUE[one.code].remedy} for one in left],
        "gates": list(GATES),
        "next_step": command("apply", "-" if is_dash(request.out) else request.out, "--yes"),
    }
