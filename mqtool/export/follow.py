"""Continuous export: what a broker appends is in the lake some seconds later."""

from collections.abc import Callable, Iterator

from mqtool.errors import UsageError
from mqtool.export.job import ExportRequest, ExportResult, Runner
from mqtool.export.plain import export


def follow(request: ExportRequest, runner: Runner, wait: Callable[[], bool]) -> Iterator[ExportResult]:
    """Exports repeatedly; each run that finds new messages is one commit.

    Args:
        request: what to export; must have a state.
        runner: runs the tasks.
        wait: waits between two runs; returns whether to run again.

    Yields:
        The result of the first run, and of each later run that committed something.

    Raises:
        UsageError: no state; without it each run would refuse the previous run's directory.
        MqtoolError, OSError: see `export`.
    """
    if request.state is None:
        raise UsageError("--follow needs a state file; add --state FILE")
    is_first = True
    while True:
        result = export(request, runner)
        if is_first or result.committed:
            yield result
        is_first = False
        if not wait():
            return
