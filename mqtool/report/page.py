"""Pages of HTML: the report about a store, and the life of a message as a diagram with a lane per participant.

A page is one file without external resources. Every value is escaped. Message bodies and properties never appear; names
of topics, groups and files do.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, field

from mqtool import __version__, words
from mqtool.commands import Opened, command
from mqtool.errors import StoreError
from mqtool.formats.topics import is_system_topic
from mqtool.jobs.progress import OnProgress, ignore
from mqtool.pages import templates
from mqtool.store import Store
from mqtool.store.files import MappedFile
from mqtool.store.queues.consume_queue import Lag
from mqtool.store.waiting.held_back import waiting_by_segment
from mqtool.story import MessageHistory, Step, StepKind
from mqtool.verify import CATALOGUE, Area, Finding, Options, Severity, State, Verification, examine
from mqtool.verify.facts import Facts
from mqtool.verify.finding_collector import unread
from mqtool.verify.findings import LostRange
from mqtool.verify.segment import MINUTE_MS, SegmentFacts, Timeline

if TYPE_CHECKING:
    from jinja2 import Environment

MAX_CELLS = 480
"""Cells of the segment map; more segments than these share cells."""
COLUMNS = 24
WIDTH = 1000
"""Width of the damage map, in SVG user units."""
_NARROWEST = 4.0
_STATES = ("missing", "unreadable", "damaged", "valid", "empty")

BINS = 60

_FEWEST = 12

MAX_TOPICS = 24
"""Maximum number of topics drawn, largest first; the table lists all."""

_OUTSIDE = 0.001
"""Share of the messages at either end that may lie outside of the axis: a broken clock must not squeeze the rest."""

MAX_ROWS = 500
"""Maximum number of rows of a table; further ones are only counted."""

MAX_PLACES = 50
"""Maximum number of locations listed per code."""

VERDICTS = {
    State.CLEAN: "Nothing is wrong.",
    State.DIRTY: "The broker's next start repairs everything found. Review it first.",
    State.CORRUPT: "The store is damaged, and the broker's next start does not repair it.",
    State.UNKNOWN: "Nothing wrong was found, but not everything could be checked.",
}

_RANK = {Severity.ERROR: 0, Severity.UNKNOWN: 1, Severity.WARNING: 2, Severity.NOTE: 3}


LANE_WIDTH, ROW_HEIGHT = 150, 34
BROKER, PRODUCER = "broker", "producer"


class Cell(Struct, frozen=True):
    """One segment, or several adjacent ones."""

    state: str  # the worst of their states: missing, unreadable, damaged, valid, empty (preallocated)
    filled: float  # fraction that contains records or a BLANK, 0 to 1
    title: str  # description
    column: int  # and row: position in the map
    row: int


class Mark(Struct, frozen=True):
    """One damaged range in the damage map: position, width and description."""

    left: float
    width: float
    title: str


def segment_map(
    segments: Sequence[MappedFile], facts: Sequence[SegmentFacts], ranges: Sequence[LostRange]
) -> list[Cell]:
    """Returns the cells of all segments and of the gaps between them, in log order."""
    parts: list[tuple[str, float, str]] = []
    by_number = {item.number: item for item in facts}
    for number, segment in enumerate(segments):
        if number and segments[number - 1].end < segment.base:
            gap = segment.base - segments[number - 1].end
            parts.append(("missing", 0.0, f"missing before {segment.path.name}: {words.size(gap)}"))
        parts.append(_segment(segment, by_number.get(number), ranges))
    share = -(-len(parts) // MAX_CELLS) or 1
    cells = []
    for place, first in enumerate(range(0, len(parts), share)):
        group = parts[first : first + share]
        state = min((item[0] for item in group), key=_STATES.index)
        title = group[0][2] if len(group) == 1 else f"{len(group)} segments: {group[0][2]} to {group[-1][2]}"
        filled = sum(item[1] for item in group) / len(group)
        cells.append(Cell(state, filled, title, place % COLUMNS, place // COLUMNS))
    return cells


def _segment(segment: MappedFile, facts: SegmentFacts | None, ranges: Sequence[LostRange]) -> tuple[str, float, str]:
    hit = [part for part in ranges if part.start < segment.end and part.end > segment.base]
    name = segment.path.name
    if facts is None:
        return ("damaged" if hit else "empty"), 0.0, f"{name}: empty, preallocated"
    filled = (facts.end - segment.base) / segment.size if segment.size else 0.0
    filled = min(1.0, max(0.0, filled))
    holds = f"{name}: {words.counted(facts.records, 'message')}"
    if facts.failure:
        return "unreadable", filled, f"{holds}, cannot be read to the end"
    if hit:
        lost = sum(min(part.end, segment.end) - max(part.start, segment.base) for part in hit)
        return "damaged", filled, f"{holds}, {words.size(lost)} damaged"
    return "valid", filled, holds


def damage_map(start: int, end: int, ranges: Sequence[LostRange]) -> list[Mark]:
    """Returns the positions of damaged ranges between two physical offsets, each wide enough to be visible."""
    total = max([end, *(lost.end for lost in ranges)]) - start
    marks: list[Mark] = []
    for lost in ranges:
        left = max(0.0, (lost.start - start) / max(1, total)) * WIDTH
        width = max(_NARROWEST, (lost.end - lost.start) / max(1, total) * WIDTH)
        left = min(left, WIDTH - _NARROWEST)
        if marks and left < marks[-1].left + marks[-1].width and len(marks) >= MAX_CELLS:
            continue  # it would not be seen
        marks.append(
            Mark(
                round(left, 2),
                round(min(width, WIDTH - left), 2),
                f"{lost.start} to {lost.end}: {lost.kind}, {words.size(lost.end - lost.start)}",
            )
        )
    return marks


class Row(Struct, frozen=True):
    """One topic."""

    topic: str  # name
    messages: int  # and bytes: totals
    bytes: int
    # (position counted from 0, height as a fraction of the row's highest bar) of the bars that are not empty.
    bars: tuple[tuple[int, float], ...]
    first: str  # and last: times of its first and last message, to the minute
    last: str
    words: str  # the same as text, for readers who cannot see the bars


class Chart(Struct, frozen=True):
    """All topics."""

    rows: tuple[Row, ...]  # ordered by number of messages, largest first
    start: str  # and end: of the axis
    end: str
    bins: int  # and minutes: number of bars on the axis, and the minutes that one bar covers
    minutes: int
    outside: int  # number of messages before or after the axis
    more: int  # number of topics that are not drawn


def chart(timeline: Timeline) -> Chart | None:
    """Returns the chart; None if there are no messages."""
    if not timeline.messages:
        return None
    counts: dict[int, int] = {}
    by_topic: dict[str, list[tuple[int, int]]] = {}
    for (topic, minute), count in timeline.messages.items():
        counts[minute] = counts.get(minute, 0) + count
        by_topic.setdefault(topic, []).append((minute, count))
    low, high = _axis(counts)
    step = -(-(high - low + 1) // BINS)
    bins = max(_FEWEST, -(-(high - low + 1) // step))
    order = sorted(timeline.records.items(), key=lambda item: (-item[1], item[0]))
    rows = tuple(
        _row(topic, total, timeline.bytes[topic], by_topic.get(topic, []), low, step, bins)
        for topic, total in order[:MAX_TOPICS]
    )
    outside = sum(count for minute, count in counts.items() if not low <= minute <= high)
    ends = _time(low), _time(low + step * bins)
    return Chart(rows, *ends, bins, step, outside, max(0, len(order) - MAX_TOPICS))


def _axis(counts: dict[int, int]) -> tuple[int, int]:
    """Returns the first and the last minute of the axis."""
    minutes = np.array(sorted(counts))
    share = np.cumsum([counts[minute] for minute in minutes.tolist()]) / sum(counts.values())
    low = int(minutes[int(np.searchsorted(share, _OUTSIDE))])
    high = int(minutes[min(len(minutes) - 1, int(np.searchsorted(share, 1 - _OUTSIDE)))])
    reach = max(BINS, 2 * (high - low))
    near = minutes[(minutes >= low - reach) & (minutes <= high + reach)]
    return int(near[0]), int(near[-1])


def _row(
    topic: str, total: int, volume: int, minutes: Iterable[tuple[int, int]], low: int, step: int, bins: int
) -> Row:
    given = sorted(minutes)
    heights = np.zeros(bins, np.int64)
    for minute, count in given:
        place = (minute - low) // step
        if 0 <= place < bins:
            heights[place] += count
    top = int(heights.max(initial=0))
    bars = tuple((place, round(int(count) / top, 4)) for place, count in enumerate(heights.tolist()) if count)
    if not given:
        return Row(topic, total, volume, bars, "", "", "when is not known")
    first, last = _time(given[0][0]), _time(given[-1][0])
    words_ = f"{words.counted(total, 'message')}, " + (f"all at {first}" if first == last else f"{first} to {last}")
    if top and first != last:
        peak = _time(low + step * int(heights.argmax()))
        words_ += f", at most {words.number(top)} in {words.counted(step, 'minute')}, at {peak}"
    return Row(topic, total, volume, bars, first, last, words_)


def _time(minute: int) -> str:
    return words.moment(minute * MINUTE_MS)[:16]


class Group(Struct, frozen=True):
    """All findings with one code."""

    code: str  # and severity, meaning, remedy: of the code; the severity is the worst among its findings
    severity: Severity
    meaning: str
    remedy: str
    count: int  # and lost_messages, lost_bytes: totals of its findings
    lost_messages: int
    lost_bytes: int
    places: tuple[Finding, ...]  # locations of the first findings
    next_steps: tuple[str, ...]  # the commands to run, each once


class QueueRow(Struct, frozen=True):
    """One queue, with the consumer group that has the largest lag."""

    topic: str  # and queue_id, min_offset, max_offset, messages: of the queue
    queue_id: int
    min_offset: int
    max_offset: int
    messages: int
    lag: int | None  # and group: of the group with the largest lag; None if no group consumes the queue
    group: str | None
    groups: int  # how many groups consume it
    lost: int  # number of its messages that are lost

    @property
    def is_system(self) -> bool:
        """Whether its topic is the broker's own."""
        return is_system_topic(self.topic)


class Content(Struct, frozen=True):
    """The page.

    Attributes:
        cells, rows_of_cells, marks, ranges: the map of the log.
    """

    store: str  # path as the user gave it
    created: str  # text that states when and by which release of mqtool the page was created
    answer: Verification  # of verify
    verdict: str  # a sentence
    release: str  # release of the broker, as text
    facts: tuple[tuple[str, str], ...]  # (name, value) pairs below the verdict
    steps: tuple[str, ...]  # the commands to run; if there are none, each finding has its own
    groups: tuple[Group, ...]  # and lint: findings by code; `lint` has those about the configuration
    lint: tuple[Group, ...]
    lint_ran: bool  # whether there was a configuration to check
    cells: tuple[Cell, ...]
    marks: tuple[Mark, ...]
    start: int
    end: int
    ranges: tuple[LostRange, ...]
    is_log_read: bool  # to its end; otherwise what was counted and what is lost is at least what is stated
    chart: Chart | None  # messages over time; None if there are none
    queues: tuple[QueueRow, ...]  # and lags: queues, and consumer groups with lag
    lags: tuple[Lag, ...]
    # Which segment contains messages that the broker has not delivered yet, a line for each queue.
    waiting: tuple[str, ...] = ()
    notes: dict[str, int] = field(default_factory=dict)  # texts that state what was omitted for size
    commands: dict[str, str] = field(default_factory=dict)


def gather(store: Store, answer: Verification, facts: Facts, created: str, advice: tuple[str, ...] = ()) -> Content:
    """Collects the contents of the page."""
    store.skip_unreadable()  # the findings state what is unknown then
    store.skip_unreadable_queues()
    survey, losses = facts.survey, answer.losses
    groups = grouped(answer.findings)
    lint = tuple(group for group in groups if CATALOGUE[group.code].area is Area.LINT)
    others = tuple(group for group in groups if group not in lint)
    queues, lags = _queues(store, answer)
    waiting = _waiting(store)
    rows = {"ranges": losses.ranges, "queues": queues, "lags": lags, "waiting": waiting}
    shown = Opened(store.path, store.config.file)
    is_log_read = answer.complete and not unread(answer.findings, Area.COMMIT_LOG)
    end = max([survey.end, *(interval.end for interval in losses.ranges)])
    return Content(
        store=str(survey.root),
        created=created,
        answer=answer,
        verdict=VERDICTS[answer.state],
        release=_release(store),
        facts=_numbers(answer, facts, len(queues), is_log_read=is_log_read),
        steps=advice,
        groups=others,
        lint=lint,
        lint_ran=any(check.area is Area.LINT for check in answer.checks),
        cells=tuple(segment_map(survey.segments, facts.segments, losses.ranges)),
        marks=tuple(damage_map(survey.min_offset, end, losses.ranges)),
        start=survey.min_offset,
        end=end,
        ranges=losses.ranges[:MAX_ROWS],
        is_log_read=is_log_read,
        chart=chart(facts.timeline),
        queues=tuple(queues[:MAX_ROWS]),
        lags=tuple(lags[:MAX_ROWS]),
        waiting=tuple(waiting[:MAX_ROWS]),
        notes={name: max(0, len(listed) - MAX_ROWS) for name, listed in rows.items()},
        commands={
            "verify": command("verify", shown, "--format", "json"),
            "pending": command("pending", shown),
            "info": command("info", shown),
        },
    )


def _waiting(store: Store) -> list[str]:
    """Returns a line for each segment and queue with messages that wait, or one that says why they are unknown."""
    try:
        segments = waiting_by_segment(store)
    except StoreError as error:
        return [f"unknown: {error}"]
    return [messages.words_of(segment) for segment, undelivered in segments for messages in undelivered]


def grouped(findings: Sequence[Finding]) -> tuple[Group, ...]:
    """Returns findings grouped by code, most severe first, then in the order of the catalogue."""
    by_code: dict[str, list[Finding]] = {}
    for finding in findings:
        by_code.setdefault(finding.code, []).append(finding)
    groups = [_group(code, by_code[code]) for code in CATALOGUE if code in by_code]
    return tuple(sorted(groups, key=lambda group: _RANK[group.severity]))


def _group(code: str, findings: list[Finding]) -> Group:
    check = CATALOGUE[code]
    worst = min((finding.severity for finding in findings), key=lambda severity: _RANK[severity])
    steps = tuple(dict.fromkeys(finding.next_step for finding in findings[:MAX_PLACES] if finding.next_step))
    return Group(
        code,
        worst,
        check.meaning,
        check.remedy,
        len(findings),
        sum(item.lost_messages for item in findings),
        sum(item.lost_bytes for item in findings),
        tuple(findings[:MAX_PLACES]),
        steps[:MAX_PLACES],
    )


def _numbers(answer: Verification, facts: Facts, queues: int, *, is_log_read: bool) -> tuple[tuple[str, str], ...]:
    survey, counted = facts.survey, answer.statistics
    newest = words.moment(facts.newest) + " UTC" if facts.newest else "–"
    log = f"{words.size(max(0, survey.end - survey.min_offset))}, {words.counted(len(survey.segments), 'segment')}"

    def known(count: int, text: str) -> str:
        return text if is_log_read else f"at least {text}" if count else "unknown"

    return (
        ("Messages lost", known(answer.losses.messages, words.number(answer.losses.messages))),
        ("Bytes damaged", known(answer.losses.bytes, words.size(answer.losses.bytes))),
        ("Messages in the log", known(counted.records, words.number(counted.records))),
        ("CommitLog", log),
        ("Queues", words.number(queues)),
        ("Newest message", newest),
    )


def _release(store: Store) -> str:
    return f"RocketMQ {store.version.words}" if store.version.line else "an unknown release"


def _queues(store: Store, answer: Verification) -> tuple[list[QueueRow], list[Lag]]:
    lags = store.lags()
    by_queue: dict[tuple[str, int], list[Lag]] = {}
    for lag in lags:
        by_queue.setdefault((lag.topic, lag.queue_id), []).append(lag)
    lost: dict[tuple[str, int], int] = {}
    for loss in answer.losses.queues:
        key = (loss.topic, loss.queue_id)
        lost[key] = lost.get(key, 0) + loss.messages
    rows = []
    for queue in store.queues():
        key = (queue.topic, queue.queue_id)
        mine = by_queue.get(key, [])
        worst = max(mine, key=lambda lag: lag.lag or 0, default=None)
        low, high = max(0, queue.min_offset), queue.max_offset
        rows.append(
            QueueRow(
                *key,
                low,
                high,
                high - low,
                worst.lag if worst else None,
                worst.group if worst else None,
                len(mine),
                lost.get(key, 0),
            )
        )
    rows.sort(key=lambda row: row.is_system)
    lagging = [lag for lag in lags if lag.lag is None or lag.lag > 0]
    lagging.sort(key=lambda lag: (lag.lag is not None, -(lag.lag or 0), lag.group, lag.topic, lag.queue_id))
    return rows, lagging


def report(
    store: Store,
    options: Options | None = None,
    on_progress: OnProgress = ignore,
    advise: Callable[[Store, Verification], Sequence[str]] | None = None,
) -> tuple[str, Verification]:
    """Checks a store and returns the page as HTML, and the answer of verify that it shows.

    Messages over time are always counted, whatever the options of verify state. `advise` returns the commands to run;
    without one, or if it returns none, each finding has its own. Raises UsageError for a state file that is not one of
    verify.
    """
    chosen = options or Options()
    verify_options = Options(
        chosen.topics, chosen.jobs, chosen.throttle, chosen.state, chosen.max_seconds, timeline=True
    )
    answer, facts = examine(store, verify_options, on_progress)
    created = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC by mqtool {__version__}"
    steps = () if advise is None else tuple(advise(store, answer))
    return render(gather(store, answer, facts, created, steps)), answer


def render(content: Content) -> str:
    """Returns the page as HTML."""
    return _environment().get_template("report.html").render(page=content, answer=content.answer)


@cache
def _environment() -> "Environment":
    environment = templates("mqtool.report")
    environment.filters.update(runs=words.runs)
    environment.globals.update(columns=COLUMNS, map_width=WIDTH)
    return environment


class Dot(Struct, frozen=True):
    """A step in the diagram."""

    x: int  # and y: its centre, in pixels
    y: int
    step: Step  # what happened
    time: str  # as text; "" if the store does not contain it
    due: str  # the same for the delivery time


class Diagram(Struct, frozen=True):
    """The diagram of one life."""

    history: MessageHistory  # the life that is drawn
    lanes: tuple[tuple[str, int], ...]  # name and centre of each lane: producer, broker, each consumer group
    dots: tuple[Dot, ...]  # one for each step
    width: int  # and height: in pixels
    height: int

    @property
    def path(self) -> str:
        """Lines for `path`: from each proved step to the one it follows, of its group or before any group."""
        lines, last = [], dict[str | None, Dot]()
        for dot in self.dots:
            group = None if lane_of(dot.step) == PRODUCER else dot.step.group
            if dot.step.kind is not StepKind.UNKNOWN:
                if before := last.get(group) or last.get(None):
                    lines.append(f"M{before.x},{before.y} L{dot.x},{dot.y}")
                last[group] = dot
        return " ".join(lines)


def story(store: str, address: str, histories: Sequence[MessageHistory], notes: Sequence[str]) -> str:
    """Returns the page as HTML."""
    created = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC by mqtool {__version__}"
    diagrams = [diagram(life) for life in histories]
    template = _environment().get_template("story.html")
    return template.render(store=store, address=address, pictures=diagrams, notes=notes, made=created)


def diagram(life: MessageHistory) -> Diagram:
    """Computes the positions of a life's steps and lanes."""
    names = [PRODUCER, BROKER, *dict.fromkeys(lane_of(step) for step in life.steps)]
    lanes = {name: LANE_WIDTH // 2 + LANE_WIDTH * at for at, name in enumerate(dict.fromkeys(names))}
    dots = tuple(
        Dot(lanes[lane_of(step)], 48 + ROW_HEIGHT * row, step, _exact_time(step.at), _exact_time(step.due))
        for row, step in enumerate(life.steps)
    )
    return Diagram(life, tuple(lanes.items()), dots, LANE_WIDTH * len(lanes), 48 + ROW_HEIGHT * len(dots))


def lane_of(step: Step) -> str:
    """Returns who performed a step: the producer, the broker or a consumer group."""
    if step.is_of_producer or step.kind is StepKind.SENT:
        return PRODUCER
    by_broker = (StepKind.RETRY, StepKind.DEAD)
    return BROKER if step.group is None or step.kind in by_broker else step.group


def _exact_time(at: int | None) -> str:
    return "" if at is None else f"{words.moment(at)}.{at % 1000:03} UTC"
