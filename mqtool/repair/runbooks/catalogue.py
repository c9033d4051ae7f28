"""All runbooks by id, and the order in which a store needs them."""

from collections.abc import Iterable

from mqtool.repair.runbooks.copy_runbooks import COPY_RUNBOOKS
from mqtool.repair.runbooks.log_runbooks import LOG_RUNBOOKS
from mqtool.repair.runbooks.model import Runbook
from mqtool.repair.runbooks.start_runbooks import START_RUNBOOKS
from mqtool.verify import CATALOGUE, Finding

RUNBOOKS: dict[str, Runbook] = {
    runbook.id: runbook
    for runbook in sorted((*LOG_RUNBOOKS, *START_RUNBOOKS, *COPY_RUNBOOKS), key=lambda runbook: runbook.id)
}

ORDER = (
    *("RB-18", "RB-11"),  # nobody else writes, and there is room
    *("RB-01", "RB-20", "RB-13", "RB-05", "RB-14", "RB-04"),  # the log, which all else is made from
    *("RB-15", "RB-19", "RB-10"),  # other layouts, topics
    *("RB-07", "RB-03", "RB-02", "RB-06", "RB-17"),  # what is derived from the log
    "RB-09",  # tables and checkpoint, which refer to all of this
    *("RB-08", "RB-12", "RB-16", "RB-21", "RB-22"),  # the start, and jobs that need a healthy store
)
"""Ids in the order in which runbooks are run where a store needs several."""


def runbooks_for(findings: Iterable[Finding]) -> tuple[Runbook, ...]:
    """Returns the runbooks named first by findings, in the order in which to run them."""
    codes = {finding.code for finding in findings}
    return tuple(RUNBOOKS[name] for name in ORDER if any(CATALOGUE[code].runbooks[:1] == (name,) for code in codes))
