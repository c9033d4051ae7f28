"""An export that goes on: what a broker appends is in the lake some seconds later."""

from collections.abc import Callable, Iterator

from mqtool.errors import UsageError
from mqtool.export.job import ExportRequest, ExportResult, Runner
from mqtool.export.plain import export


def follow(request: ExportRequest, runner: Runner, wait: Callable[[], bool]) -> Iterator[ExportResult]:
    """Exports again and again; each run that finds something new is one commit.

    Args:
        request: what; with a state.
        runner: where tasks run.
        wait: waits between two runs; whether there is to be another.

    Yields:
        The result of the first run, and of each later one that committed something.

    Raises:
        UsageError: no state, without which each run would refuse what the one before has written.
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
