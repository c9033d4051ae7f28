"""Turns the steps of a start into the difference between the directory before and after.

A file that is deleted and created again under its name counts as neither.
"""

from pathlib import Path

from mqtool.formats import file_names
from mqtool.recovery.action_log import Action
from mqtool.recovery.index import read_header, summary_of
from mqtool.recovery.mapped_files import list_entries
from mqtool.recovery.outcome import FileChanges, IndexSummary
from mqtool.recovery.queue_files import UnitContent
from mqtool.recovery.start import Start
from mqtool.store.files import read_file


def file_changes(start: Start) -> FileChanges:
    """Returns which files are deleted, created and changed."""
    present = _presence(start)
    before = {path: path.is_file() for path in present}
    root = start.settings.root

    def names(paths: list[Path]) -> tuple[str, ...]:
        return tuple(sorted(path.relative_to(root).as_posix() for path in paths if path.is_relative_to(root)))

    return FileChanges(
        deleted=names([path for path, is_present in present.items() if before[path] and not is_present]),
        created=names([path for path, is_present in present.items() if not before[path] and is_present]),
        changed=names([path for path in _changed(start) if path.is_file() and present.get(path, True)]),
    )


def _presence(start: Start) -> dict[Path, bool]:
    """Returns whether each file that a step creates or deletes exists in the end."""
    present: dict[Path, bool] = {}
    for step in start.actions.steps:
        if step.action is Action.DELETE:
            present[step.path] = False
        elif step.action is Action.CREATE:
            present[step.path] = True
        elif step.action is Action.WRITE and not step.path.exists():
            present.setdefault(step.path, True)
    return present


def _changed(start: Start) -> set[Path]:
    changed = {step.path for step in start.actions.steps if step.action in (Action.GROW, Action.WRITE)}
    changed |= {file.path for file in start.state.index.files if file.path is not None and file.added}
    for queue in start.state.queues.values():
        changed |= {queue_file.path for queue_file in queue.files.files if _differs(queue_file.content)}
    backup = start.settings.root / file_names.ABORT_BACKUP
    if backup in changed and backup.is_file() and read_file(backup) == _abort_content(start):
        changed.discard(backup)
    return changed


def _differs(content: UnitContent) -> bool:
    return content.path.is_file() and content.is_changed


def _abort_content(start: Start) -> bytes:
    return read_file(start.abort) if start.had_abort else b""


def index_after(start: Start) -> tuple[IndexSummary, ...]:
    """Returns all files in index/ in the order of their names, including those that the broker ignores."""
    known = {file.path: file for file in start.state.index.files if file.path is not None}
    deleted = {path for path, is_present in _presence(start).items() if not is_present}
    summaries: list[tuple[str, IndexSummary]] = []
    for entry in list_entries(start.settings.root / file_names.INDEX) or []:
        if entry.problem or entry.path in deleted:
            continue
        file = known.get(entry.path)
        summaries.append((entry.name, file.summary if file else summary_of(entry.name, read_header(entry))))
    # the clock's name sorts after the names of older files, and before text
    newest = max((name for name, _ in summaries if name.isdigit()), default="") + ":"
    new = [(newest, file.summary) for file in start.state.index.files if file.path is None]
    return tuple(summary for _, summary in sorted(summaries + new, key=lambda item: item[0]))
