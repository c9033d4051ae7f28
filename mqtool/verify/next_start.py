"""What the next start of a broker would do to the store, for `verify`'s headline.

Computed by `mqtool.recovery`, as for `explain-start`. If log and queues are intact, nothing needs to be read again:
a start that does not shorten either of them loses nothing. Otherwise the messages that a start loses are counted in
one more pass over the log, unless the log is too long or the caller limits reading.
"""

from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from mqtool.errors import MqtoolError
from mqtool.formats.release import Release, release_of
from mqtool.recovery import Outcome, predict
from mqtool.recovery.outcome import GIVEN, OTHER
from mqtool.recovery.predict import other_start
from mqtool.store import Store
from mqtool.verify.facts import Facts
from mqtool.verify.findings import NextStart, State
from mqtool.verify.survey import Survey

CLEAN_LOG = 128 << 20
"""Maximum bytes of log that are read again for a store without errors and warnings."""
DAMAGED_LOG = 16 << 30
"""Maximum bytes of log that are read again for any other store."""
MAX_RECORDS = 4_000_000
"""Maximum number of its records: finding the messages that a start loses takes about 230 bytes of memory for each."""
_LIVE = (
    "a broker is running, and its next start depends on how it stops; a second broker would fail to get the lock, "
    "but only after cutting and deleting files"
)


def next_start(
    store: Store, facts: Facts, state: State, in_foreign: int, broker: str | None = None, *, is_consistent: bool
) -> NextStart | None:
    """Returns what the next start does; None for a store in object storage.

    While a broker is running it is unknown, because it depends on how the broker stops. A second broker started
    meanwhile checks the lock only after load(), which cuts and deletes files (DefaultMessageStore.start, 4.9.7, 5.5.0).

    Messages `in_foreign` are lost because another broker's segment is in the place of their own. Its records name the
    same places in queues, so that to the start they are those messages, and not served. `broker` is the release that
    would be started, by default the detected one; UsageError if its rules are not known. `is_consistent` is whether log
    and queues were read and compared, and no fault was found in them.
    """
    survey = facts.survey
    if store.is_remote:
        return None
    release = store.version.release if broker is None else release_of(broker)
    evidence = store.version.assumption if broker is None else GIVEN
    if survey.live:
        return NextStart(str(release), evidence, _LIVE)
    if survey.unlisted:
        path, why = next(iter(survey.unlisted.items()))
        return NextStart(str(release), evidence, f"{path} cannot be listed: {why}")
    size = sum(segment.size for segment in survey.segments)
    records = sum(segment.records for segment in facts.segments)
    is_small = size <= (CLEAN_LOG if state is State.CLEAN else DAMAGED_LOG) and records <= MAX_RECORDS
    read = survey.throttle is None and is_small
    is_plain = is_consistent and _is_plain(facts)

    def start(of: Release, read_log: bool) -> Outcome:
        begin = partial(predict, store.path, str(of), store.config)
        outcome = _consistent_start(facts, begin) if is_plain else None
        return outcome or begin(read_log=read_log and read)

    try:
        outcome = start(release, True)
        result = _next_start_of(outcome, survey, evidence, in_foreign)
        is_settled = state is State.CLEAN and not store.version.contrary
        other = None if broker is not None or is_settled else other_start(outcome, store.version, start)
    except MqtoolError as error:
        return NextStart(str(release), evidence, str(error))
    return result if other is None else replace(result, other=_next_start_of(other, survey, OTHER, in_foreign))


def _is_plain(facts: Facts) -> bool:
    """Whether every record passes the broker's own test if it passes the checks, and all queues were compared."""
    survey = facts.survey
    plain = all(segment.has_plain_records for segment in facts.segments)
    return plain and survey.topics is None and not survey.has_dledger and not survey.unlisted


def _consistent_start(facts: Facts, start: Callable[..., Outcome]) -> Outcome | None:
    """Returns the start of a store in which every record agrees with its units; None if it may lose a message."""
    survey = facts.survey
    starts = {
        survey.segments[segment.number].base: segment.first_record[segment.first_record >= 0]
        for segment in facts.segments
    }
    outcome = start(read_log=False, checked=starts)
    return (
        replace(outcome, lost={}, gone={}, by_start={}, unserved={})
        if outcome.runs and _keeps_all(outcome, facts)
        else None
    )


def _keeps_all(outcome: Outcome, facts: Facts) -> bool:
    """Whether log and queues cover at least the same offsets after a start as now, at both ends."""
    if outcome.after_start is None or outcome.queues is None:
        return False
    low, high = outcome.after_start
    if low > facts.survey.min_offset or high < facts.survey.end:
        return False
    for queue in facts.queues:
        after = outcome.queues.get(f"{queue.topic}/{queue.queue_id}")
        if queue.min_offset is None:
            continue
        if after is None or after.min_offset > queue.min_offset or after.max_offset < queue.max_offset:
            return False
    return True


def uncounted_timers(what: str) -> str:
    """Returns why it is unknown what a start loses, for timer files with a fault: the predicate of a sentence."""
    return f"the timer's files {what}, so messages waiting there are not counted"


def without_timer(start: NextStart, what: str) -> NextStart:
    """Returns the prediction for a store with damaged or unreadable timer files: waiting messages are not counted."""
    if start.do_not_start is not False:
        return start
    return replace(start, verdict=uncounted_timers(what), losses=None, do_not_start=None)


def _next_start_of(outcome: Outcome, survey: Survey, evidence: str, in_foreign: int) -> NextStart:
    if not outcome.runs:
        return NextStart(outcome.release, evidence, outcome.verdict, None, do_not_start=True)
    if outcome.lost is None:
        return NextStart(outcome.release, evidence, "the log was not read; run `mqtool explain-start`")
    count = outcome.count(lambda name: survey.includes(name.rpartition("/")[0]))
    others = min(max(0, in_foreign - count.gone), count.unserved)
    count = replace(count, gone=count.gone + others, unserved=count.unserved - others)
    return NextStart(outcome.release, evidence, outcome.verdict, count, do_not_start=count.do_not_start)
