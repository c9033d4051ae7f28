"""What the next start of a broker would do to the store, for `verify`'s headline.

Computed by `mqtool.recovery`, as for `explain-start`. Counting the messages that a start loses takes one more pass over
the log; it is skipped if it would take longer than the check itself, or than the caller allows.
"""

from dataclasses import replace
from typing import Any

from mqtool.errors import MqtoolError
from mqtool.formats.release import assumed_release, release_of
from mqtool.recovery import Outcome, predict
from mqtool.recovery.predict import evidence_of
from mqtool.store import Store
from mqtool.store.remote import RemotePath
from mqtool.verify.findings import NextStart, State
from mqtool.verify.survey import Survey

CLEAN_LOG = 128 << 20
"""Bytes up to which the log of a store without findings is read once more."""
DAMAGED_LOG = 16 << 30
"""Bytes up to which that of a store with findings is: for each record some 60 bytes are kept in memory."""
_LIVE = (
    "a broker is running, and the start after it depends on how it stops; another one would fail at the lock, "
    "but only after it had cut and deleted files as for a start"
)


def next_start(store: Store, survey: Survey, state: State, lost: int, broker: str | None = None) -> NextStart | None:
    """Returns what the next start does, None for a store that is not a local directory.

    While a broker is running it is unknown: it depends on how the broker stops. A second broker started meanwhile
    checks the lock only after load(), which cuts and deletes files (DefaultMessageStore.start, 4.9.7, 5.5.0).

    Args:
        store: the store.
        survey: of the store.
        state: the verdict so far.
        lost: messages that are lost already.
        broker: release that would be started; by default the detected one.

    Raises:
        UsageError: the rules of that release are not known.
    """
    where: Any = store.path
    if isinstance(where, RemotePath):
        return None
    release = assumed_release(store.version.line) if broker is None else release_of(broker)
    evidence = evidence_of(store.version) if broker is None else "given"
    if survey.live:
        return NextStart(str(release), evidence, _LIVE)
    if survey.unlisted:
        path, why = next(iter(survey.unlisted.items()))
        return NextStart(str(release), evidence, f"{path} cannot be listed: {why}")
    size = sum(segment.size for segment in survey.segments)
    read_log = survey.throttle is None and size <= (CLEAN_LOG if state is State.CLEAN else DAMAGED_LOG)
    try:
        outcome = predict(store.path, str(release), store.config, read_log=read_log)
    except MqtoolError as error:
        return NextStart(str(release), evidence, str(error))
    return _judged(outcome, survey, evidence, lost)


def without_timer(start: NextStart) -> NextStart:
    """Returns a start's prediction for a store with damaged timer files: waiting messages are not counted."""
    if start.do_not_start is not False:
        return start
    words = "the timer's files are damaged, and messages that wait there are not counted"
    return replace(start, verdict=words, lost_messages=None, do_not_start=None)


def _judged(outcome: Outcome, survey: Survey, evidence: str, already: int) -> NextStart:
    if not outcome.runs:
        return NextStart(outcome.release, evidence, outcome.verdict, None, do_not_start=True)
    if outcome.lost is None:
        return NextStart(outcome.release, evidence, "the log was not read for it; run `mqtool explain-start`")
    lost = sum(
        last - first + 1
        for name, ranges in outcome.lost.items()
        if survey.wants(name.rpartition("/")[0])
        for first, last in ranges
    )
    return NextStart(outcome.release, evidence, outcome.verdict, lost, do_not_start=lost > already)
