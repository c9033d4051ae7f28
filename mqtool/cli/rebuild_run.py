"""What `mqtool rebuild` does once its options are read."""

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mqtool.cli import ranges, siblings
from mqtool.cli.damaged_ranges import damaged_ranges, note_damaged_ranges
from mqtool.cli.exits import ExitCode
from mqtool.cli.invocation import Format, Invocation, note
from mqtool.cli.options import ProgressMode
from mqtool.cli.output import Output
from mqtool.cli.progress import show_progress
from mqtool.cli.rebuild_schema import REBUILD
from mqtool.cli.selected import require_selected
from mqtool.errors import UsageError
from mqtool.formats import file_names
from mqtool.rebuild.digest import Wanted
from mqtool.rebuild.log_survey import LogSurvey, survey_log
from mqtool.rebuild.metadata import Composed, Guess, compose, write
from mqtool.rebuild.one_index_file import rebuild_index_file
from mqtool.rebuild.result import Result
from mqtool.rebuild.run import OnProgress, Options, check, log_bytes, rebuild
from mqtool.rebuild.settings import Settings, settings_of
from mqtool.rebuild.timer import TimerResult, rebuild_timer
from mqtool.siblings.registry import recognise
from mqtool.store.filter_bit_maps import FilterBitMaps, bit_maps_of
from mqtool.store.processes import available
from mqtool.store.store import Store, open_store

_MOST_JOBS = 8
"""More processes than this wait for the one that writes."""


@dataclass(frozen=True, slots=True)
class Request:
    """What the options said; see `rebuild`."""

    what: str
    store: Path
    out: Path
    topics: list[str]
    queue_id: int | None
    offset: str | None
    file: str | None
    broker_version: str | None
    jobs: int | None
    state: Path | None
    resume: bool
    config: Path | None

    def check(self) -> None:
        """Raises UsageError for options that do not go together."""
        if self.resume and self.state is None:
            raise UsageError("--resume goes on where --state FILE says: give both")
        if self.file is not None and self.what != "index":
            raise UsageError(f"--file names an index file: rebuild index, not {self.what}")
        narrowed = self.topics or self.queue_id is not None
        if narrowed and self.what != "consumequeue":
            raise UsageError(f"--topic and --queue choose queues: rebuild consumequeue, not {self.what}")
        if self.offset is not None and (self.what in ("metadata", "all") or self.file is not None):
            raise UsageError("--offset narrows consumequeue or index, not metadata and not one file")
        if self.what == "timer" and (self.offset is not None or self.jobs is not None):
            raise UsageError("--offset and --jobs are for queues and index, not for the timer")
        if self.state is not None and (self.what in ("metadata", "timer") or self.file is not None):
            raise UsageError("--state is for queues and index as a whole")

    def wanted(self, store: Store) -> Wanted:
        """Returns what the library is to make."""
        start = end = None
        if self.offset is not None:
            found = ranges.parse_range(self.offset)
            if any(found.times()):
                raise UsageError(f"{self.offset!r}: expected physical offsets, not times")
            start, end = found.offsets(store.commit_log.min_offset, store.commit_log.max_offset)
        queues, index = self.what in ("consumequeue", "all"), self.what in ("index", "all")
        return Wanted(queues, index, tuple(self.topics), self.queue_id, start, end)


def run(invocation: Invocation, request: Request, output_format: Format, mode: ProgressMode) -> ExitCode:
    """Rebuilds and reports."""
    kind = recognise(request.store)
    if kind is not None:
        return siblings.rebuild(invocation, kind, request.store, request.out, request.what, output_format)
    request.check()
    began = time.monotonic()
    with open_store(request.store, request.config) as store:
        settings = settings_of(store, request.broker_version)
        require_selected([store], request.topics, request.queue_id)
        check(store, request.out, resume=request.resume)
        found = _Report(request, settings)
        with show_progress(mode, "rebuild", 0, log_bytes(store)) as bar:
            if request.what == "timer":
                first = store.commit_log.min_offset
                found.timer = rebuild_timer(store, request.out, lambda offset: bar.update(offset - first))
            elif request.what != "metadata":
                found.result = _derived(store, request, settings, found, bar.update)
            if request.what in ("metadata", "all"):
                found.survey = survey_log(store, settings.rules, bar.update)
                found.composed = compose(store, found.survey)
                write(found.composed, request.out)
    return found.print(invocation, output_format, time.monotonic() - began)


def _derived(store: Store, request: Request, settings: Settings, found: "_Report", move: OnProgress) -> Result:
    if request.file is not None:
        return rebuild_index_file(store, request.out, settings, request.file, move)
    if settings.has_extension:
        found.bit_maps = bit_maps_of(store)
    options = Options(request.jobs or min(available(), _MOST_JOBS), request.state, request.resume)
    wanted = request.wanted(store)
    return rebuild(store, request.out, settings, wanted, options, bit_maps=found.bit_maps, on_progress=move)


class _Report:
    """Gathers what is printed."""

    def __init__(self, request: Request, settings: Settings) -> None:
        self._request = request
        self._settings = settings
        self.result = Result()
        self.survey: LogSurvey | None = None
        self.composed = Composed()
        self.bit_maps: FilterBitMaps | None = None
        self.timer: TimerResult | None = None

    def print(self, invocation: Invocation, output_format: Format, seconds: float) -> ExitCode:
        """Prints all of it; the exit code says whether everything was there."""
        document = self._document(seconds)
        note_damaged_ranges(document["damage"])
        if document["damage_count"] > 10:
            note(f"damage: {document['damage_count'] - 10} more ranges")
        code = ExitCode.OK if document["complete"] else ExitCode.NO
        return Output(invocation, REBUILD, output_format).document(document, code)

    def _document(self, seconds: float) -> dict[str, Any]:
        result, request = self.result, self._request
        damage = result.damage
        records = result.records
        if self.survey is not None and request.what == "metadata":
            damage, records = self.survey.damage, self.survey.records
        if self.timer is not None:
            damage, records = self.timer.damage, self.timer.parked
        damaged = result.damaged_bytes or sum(one.end - one.start for one in damage.items)
        return {
            "what": request.what,
            "store": str(request.store),
            "out": str(request.out),
            "complete": result.is_complete and not damage and not (self.timer and self.timer.problems),
            "records": records,
            "next_offset": result.next_offset,
            "queues": result.queues,
            "units": self.timer.units if self.timer else result.units,
            "keys": result.keys,
            "damaged_bytes": damaged,
            "damage_count": damage.count,
            "notes_count": result.notes.count,
            "seconds": round(seconds, 3),
            "records_per_second": round(records / seconds) if seconds else 0,
            "index_files": result.index_files,
            "settings": _settings(self._settings),
            "damage": damaged_ranges(damage.items),
            "notes": [
                {
                    "kind": one.kind.value,
                    "topic": name.topic,
                    "queue_id": name.queue_id,
                    "first": one.first,
                    "last": one.last,
                    "physical_offset": one.physical_offset,
                }
                for name, one in result.notes.items
            ],
            "oddities": [asdict(one) for one in result.oddities.items],
            "unwritable": [asdict(one) for one in result.unwritable.items],
            "files": sorted([*self.composed.files, *(self.timer.files if self.timer else ())]),
            "guesses": [asdict(one) for one in (*self.composed.guesses, *_timer_guesses(self.timer))],
            "unconfigured_topics": self.composed.unconfigured,
            "problems": [
                *(self.bit_maps.problems if self.bit_maps else ()),
                *(self.timer.problems.items if self.timer else ()),
            ],
        }


def _timer_guesses(timer: TimerResult | None) -> Iterator[Guess]:
    """Says what of a timer no record tells."""
    if timer is not None and timer.guessed:
        reason = "no record tells when the broker met a message that still waits; the second in which it was stored"
        yield Guess(file_names.TIMER_LOG, "write times", f"{timer.guessed} of {timer.units} units", reason)
    if timer is not None and timer.read_time_from != file_names.TIMER_CHECKPOINT:
        yield Guess(
            f"{file_names.CONFIG}/{file_names.TIMER_CHECKPOINT}",
            "last_read_time_ms",
            str(timer.last_read_time_ms),
            timer.read_time_from,
        )


def _settings(settings: Settings) -> list[dict[str, str]]:
    rules = settings.rules
    release = "before 5.0" if rules.lmq_everywhere else "5.5 or newer" if rules.index_tags else "5.0 to 5.3"
    values = {
        "broker_version": release,
        "consume_queue_size": settings.consume_queue_size,
        "batch_consume_queue_size": settings.batch_consume_queue_size,
        "consume_queue_ext_size": settings.consume_queue_ext_size,
        "has_extension": settings.has_extension,
        "index_slots": settings.index_slots,
        "index_entries": settings.index_entries,
        "multi_dispatch": rules.multi_dispatch,
        "delay_levels": len(rules.delay_levels),
    }
    return [{"name": name, "value": str(value), "evidence": settings.evidence[name]} for name, value in values.items()]
