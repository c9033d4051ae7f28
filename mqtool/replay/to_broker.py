"""Replays to running brokers: reads messages, sends them, writes old and new ids, saves the position.

The caller passes the sender, so this module opens no connections. A message whose answer was not saved is sent again by
the next run: delivery is at least once.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from mqtool.engine.options import StoreOptions
from mqtool.engine.write.messages import OutgoingMessage
from mqtool.errors import UsageError
from mqtool.ingest.bulk_ingest import Ack
from mqtool.replay import state as states
from mqtool.replay.originals import Original, Source
from mqtool.replay.state import IdsFile, Pace, State, check_rate
from mqtool.replay.to_store import Report, check_files, shape_of
from mqtool.store.paths import is_inside

CHUNK = 256
"""Messages sent or read ahead together. After a crash this many may be sent twice, plus those of one second."""


class Sender(Protocol):
    """Sends messages to brokers."""

    def send(self, messages: Sequence[OutgoingMessage]) -> tuple[list[Ack], Exception | None]:
        """Returns the answers to the first messages, and the error because of which the others have none."""


class SendRequest(Struct, frozen=True):
    """Options of a replay to brokers."""

    source: Source  # the messages
    name_server: str  # "host:port" of the name server; saved in the state and compared on resume
    ids: Path | None = None  # file for old and new ids; None writes none
    state: Path | None = None  # checkpoint file for resuming, or None
    rate: float | None = None  # maximum messages per second; None for no limit
    dry_run: bool = False  # only count


def replay_to(request: SendRequest, sender: Sender) -> Report:
    """Sends the messages; the messages of each queue in the source's order.

    Raises UsageError for invalid options, the state of another replay, or an existing file of ids; StoreError if the
    source cannot be read; the sender's error after all earlier answers were saved.
    """
    _check(request)
    shape = {**shape_of(request.source, request.ids), "name_server": request.name_server}
    before, resumes = states.resume(request.state, shape, request.source, None)
    report = Report(earlier=before if resumes else None)
    known = before.known if resumes else None
    originals = request.source.originals(StoreOptions(), before.after, report.skipped, known=known)
    originals = islice(originals, request.source.selection.limit)
    if request.dry_run:
        for original in originals:
            _count(original, report)
    else:
        with IdsFile(request.ids, before.ids_bytes, resumes=resumes) as ids:
            _Run(request, sender, before, report, ids).run(originals)
    report.replayed = report.topics.total()
    return report


class _Run:
    """One run of a replay to brokers."""

    def __init__(self, request: SendRequest, sender: Sender, state: State, report: Report, ids: IdsFile) -> None:
        self._request, self._sender = request, sender
        self._before = self._state = state
        self._report, self._ids = report, ids

    def run(self, originals: Iterator[Original]) -> None:
        """Sends all messages."""
        pace = Pace(self._request.rate, CHUNK)
        self._save()
        for chunk in pace.chunks(originals):
            failure = self._send(chunk)
            if failure is not None or pace.is_save_due():
                self._save()
            if failure is not None:
                raise failure
        limit = self._request.source.selection.limit
        self._state = self._state.ended(self._before, self._report.skipped, limit)
        self._save()

    def _send(self, chunk: list[Original]) -> Exception | None:
        """Sends a chunk and records the answers; returns the error that ended it, if any."""
        answers, failure = self._sender.send([item.message for item in chunk if item.message is not None])
        results = iter(answers)
        for original in chunk:
            ack = Ack(0, None, original.reason) if original.message is None else next(results, None)
            if ack is None:
                break
            self._report.take(original, ack)
            self._ids.write(original, ack)
            state = self._state
            self._state = replace(
                state,
                after=original.position,
                replayed=state.replayed + ack.stored,
                refused=state.refused + (not ack.stored),
            )
        return failure

    def _save(self) -> None:
        if self._request.state is not None:
            state = self._state.passed(self._before, self._report.skipped.damage)
            self._state = replace(state, ids_bytes=self._ids.flush())
            self._state.save(self._request.state)


def _count(original: Original, report: Report) -> None:
    """Counts a message as sent in a dry run, in which the broker's answer is unknown."""
    message, answer = original.message, Ack(0, None, original.reason)
    if message is not None:
        answer = answer._replace(physical_offset=0, sent_to=(message.topic, message.queue_id))
    report.take(original, answer)


def _check(request: SendRequest) -> None:
    """Raises UsageError if a file is a device or inside the source, or the rate is invalid."""
    check_files(request.source, request.ids, request.state)
    for place in (request.ids, request.state):
        if place is not None and is_inside(place, request.source.path):
            raise UsageError(f"{place}: is inside the source; name a file elsewhere")
    check_rate(request.rate)
