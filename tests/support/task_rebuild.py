"""A rebuild in tasks, as `--spark` makes it, by this process."""

import pickle
from pathlib import Path
from typing import Any

from mqtool.jobs.atomic import staged_directory
from mqtool.rebuild.parts import RebuildScope
from mqtool.rebuild.settings import RebuildSettings
from mqtool.rebuild.sink import Result
from mqtool.rebuild.tasks import rebuild_in_tasks
from mqtool.store.store import Store


def run_here(job: Any, tasks: Any, _what: str, on_progress: Any) -> list[Any]:
    """Runs the tasks one after the other, the last one first; what goes to an executor and back is pickled."""
    answers = []
    for number, task in enumerate(reversed(tasks), start=1):
        answers.append(pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(task)).run(job))))
        on_progress(number, len(tasks))
    return answers[::-1]


def rebuild_by_tasks(
    store: Store,
    out: Path,
    settings: RebuildSettings,
    scope: RebuildScope | None = None,
    run: Any = run_here,
    **more: Any,
) -> Result:
    """As `mqtool.rebuild.job.rebuild`."""
    with staged_directory(out, into_empty=True) as work:
        return rebuild_in_tasks(store, work, settings, scope or RebuildScope(), run, **more)
