"""What `mqtool convert` does once its options are read."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from mqtool.cli.convert_schema import CONVERT
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format, Invocation, note
from mqtool.cli.options import ProgressMode
from mqtool.cli.output import Output
from mqtool.cli.progress import progress
from mqtool.convert import dledger, queues
from mqtool.rebuild.run import log_bytes
from mqtool.records.damage import Damage
from mqtool.store.store import Store, open_store
from mqtool.verify.findings import State
from mqtool.verify.store import verify


def run(
    invocation: Invocation,
    what: str,
    paths: tuple[Path, Path],
    config: Path | None,
    output_format: Format,
    mode: ProgressMode,
) -> ExitCode:
    """Converts, verifies what was made, and reports."""
    source, target = paths
    made_of = _dledger if what == "dledger" else _QUEUES[what]
    document = {"what": what, "source": str(source), "target": str(target), **made_of(source, target, config, mode)}
    with open_store(target) as made:
        state = verify(made).state
    document["status"] = state.value
    for row in document["damage"][:10]:
        where = f"{row['path']} position {row['position']}: " if row["path"] else ""
        note(f"damage: {where}{row['kind']} at physical offset {row['start']}, {row['end'] - row['start']} bytes")
    good = document["complete"] and state is not State.CORRUPT
    return Output(invocation, CONVERT, output_format).document(document, ExitCode.OK if good else ExitCode.NO)


def _dledger(source: Path, target: Path, config: Path | None, mode: ProgressMode) -> dict[str, Any]:
    with open_store(source, config) as store, progress(mode, "convert", 0, log_bytes(store)) as bar:
        first = store.commit_log.min_offset
        found = dledger.convert(store, target, lambda offset: bar.update(offset - first))
    rebuilt = found.rebuilt
    return {
        "complete": not found.damage and rebuilt.is_complete,
        "records": found.records,
        "units": rebuilt.units,
        "start": found.start,
        "end": found.end,
        "unresolved": found.unresolved,
        "left_behind": found.left_behind,
        "differences": [],
        "damage": [_damage(one) for one in found.damage.items],
    }


def _queues(make: Callable[[Store, Path], queues.ConvertedQueues]) -> Callable[..., dict[str, Any]]:
    def run_it(source: Path, target: Path, config: Path | None, mode: ProgressMode) -> dict[str, Any]:
        del mode  # it is the copying that takes long
        with open_store(source, config) as store:
            found = make(store, target)
        return {
            "complete": not found.damage and not found.differences,
            "records": None,
            "units": found.units,
            "start": found.start,
            "end": found.end,
            "unresolved": 0,
            "left_behind": [],
            "differences": found.differences.items,
            "damage": [_damage(one) for one in found.damage.items],
        }

    return run_it


_QUEUES = {"rocksdb-queues": _queues(queues.into_files), "file-queues": _queues(queues.into_rocksdb)}


def _damage(one: Damage) -> dict[str, Any]:
    path = None if one.path is None else str(one.path)
    return {
        "start": one.start,
        "end": one.end,
        "kind": one.kind.value,
        "path": path,
        "position": one.position,
        "detail": one.detail,
    }
