"""Replays into a store: reads messages, stores them, writes old and new ids, saves the position.

A run stores messages in the source's order and saves its position at intervals. Messages that it stored after the last
save are in the log after the saved physical offset, in order, possibly among messages of other writers: the next run
finds them there (`already_stored`).
"""

from collections import Counter
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from mqtool.choices import Compat
from mqtool.engine import open_store
from mqtool.engine.options import FlushMode, StoreOptions
from mqtool.engine.start.detect import config_for_reading, options_for
from mqtool.engine.statuses import PutStatus
from mqtool.engine.store import MessageStore
from mqtool.engine.write.messages import OutgoingMessage
from mqtool.errors import UsageError
from mqtool.formats import properties
from mqtool.ingest import bulk_ingest
from mqtool.ingest.bulk_ingest import Ack, PutValidator, Row, peeked, refuse_duplicates
from mqtool.records.damage import Damage
from mqtool.replay import state as states
from mqtool.replay.originals import Original, SkippedCounts, Source
from mqtool.replay.state import IdsFile, Pace, State, Target, check_rate
from mqtool.store import Message
from mqtool.store import open_store as open_for_reading
from mqtool.store.config.broker_config import BrokerConfig
from mqtool.store.paths import is_inside, require_regular
from mqtool.values import asdict

_SHOWN = 20

Answered = tuple[Original, Ack]


class ReplayRequest(Struct, frozen=True):
    """Options of a replay into a store."""

    source: Source  # the messages
    target: Path  # root of the target store; created if it is empty or does not exist
    ids: Path | None = None  # file for old and new ids; None writes none
    state: Path | None = None  # checkpoint file for resuming, or None
    rate: float | None = None  # maximum messages per second; None for no limit
    sync: bool = False  # flush each chunk before it is counted
    config: Path | None = None  # broker configuration of the target, or None
    compat: Compat | None = None  # release whose format to write; None for the target's own release
    dry_run: bool = False  # only count
    # Store messages again that the target already contains. If False, such a replay is refused before anything is
    # written.
    duplicates: bool = False


def check_files(source: Source, *written: Path | None) -> None:
    """Raises UsageError if a source or output file is a device or a FIFO."""
    if not source.path.is_dir():
        require_regular(source.path, "`mqtool append --from -` reads from a pipe")
    for path in written:
        if path is not None:
            require_regular(path)


def shape_of(source: Source, ids: Path | None) -> dict[str, Any]:
    """Returns the settings of source and ids file that must not change between the runs of one replay.

    They are the same for a replay into a store and one to brokers.
    """
    selection = asdict(source.selection)
    selection["grep"] = None if selection["grep"] is None else selection["grep"].decode("utf-8", "surrogateescape")
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in selection.items()}
    plain["properties"] = [list(pair) for pair in selection["properties"]]
    del plain["limit"]
    plain |= source.resend.shape()
    return {**plain, "keep_times": source.keep_times, "ids": None if ids is None else ids.name}


class Report(Struct):
    """Result of a replay."""

    replayed: int = 0  # messages stored by this run
    already_stored: int = 0  # messages that an interrupted run had stored, found in the target
    refused: int = 0  # messages that the target refused
    reasons: list[tuple[int, str]] = field(default_factory=list)  # position and reason of the first refused messages
    skipped: SkippedCounts = field(default_factory=lambda: SkippedCounts(0, 0, []))  # what was read but not replayed
    topics: Counter[str] = field(default_factory=Counter)  # number of messages by target topic
    queues: dict[str, int] = field(default_factory=dict)  # number of queues that each topic needs
    earlier: State | None = None  # state that earlier runs of the replay have left

    @property
    def is_complete(self) -> bool:
        """Whether no message was refused and the log of the source is not damaged, neither now nor in earlier runs."""
        earlier = self.earlier is not None and (self.earlier.refused or self.earlier.damage)
        return not self.refused and not self.skipped.damage and not earlier

    def take(self, original: Original, ack: Ack) -> None:
        """Counts one answer."""
        if not ack.stored:
            self.refused += 1
            self.reasons.append((original.position[0], ack.reason))
            del self.reasons[_SHOWN:]
            return
        self.topics[ack.sent_to[0]] += 1
        bulk_ingest.count_queue(self.queues, ack)


def replay(request: ReplayRequest) -> Report:
    """Stores the messages in the source's order.

    Raises UsageError for invalid options, the state of another replay, or an existing file of ids; StoreError if the
    source cannot be read, or the target accepts no more messages. Run the replay again with the same state to continue.
    """
    _check(request)
    mode = FlushMode.SYNC_FLUSH if request.sync else FlushMode.ASYNC_FLUSH
    options = options_for(request.target, request.config, request.compat, adds_messages=True, flush_mode=mode)
    validator = PutValidator(options, bulk_ingest.batch_topics(request.target, options))
    target = Target(request.target, config_for_reading(request.config, options))
    before, resumes = states.resume(request.state, shape_of(request.source, request.ids), request.source, target)
    report = Report(earlier=before if resumes else None)
    known = before.known if resumes else None
    originals = request.source.originals(options, before.after, report.skipped, known=known)
    if request.dry_run:
        for original in islice(originals, request.source.selection.limit):
            answer = ack_of(original, validator)
            if original.message is not None and not answer.reason:
                answer = answer._replace(physical_offset=0, sent_to=(original.message.topic, original.message.queue_id))
            report.take(original, answer)
        report.replayed = report.topics.total()
        return report
    with IdsFile(request.ids, before.ids_bytes, resumes=resumes) as ids:
        _Run(request, target, validator, before, report, ids).run(originals, options, resumes=resumes)
    return report


class _Run:
    """One run of a replay into a store."""

    def __init__(
        self,
        request: ReplayRequest,
        target: Target,
        validator: PutValidator,
        before: State,
        report: Report,
        ids: IdsFile,
    ) -> None:
        self._request, self._target, self._validator = request, target, validator
        self._before = self._state = before
        self._report, self._ids = report, ids

    def run(self, originals: Iterator[Original], options: StoreOptions, *, resumes: bool) -> None:
        """Opens the target, resumes where the last run ended, and stores the remaining messages."""
        limit = self._request.source.selection.limit
        if not resumes and not self._request.duplicates:
            head, originals = peeked(originals)
            messages = (self._validator.stored_form(original.message) for original in head)
            refuse_duplicates(self._target.root, self._target.config, messages)
        with open_store(self._request.target, options) as store:
            try:
                if resumes:
                    originals = self._resumed(store, originals)
                else:
                    self._save(store)  # where the next run starts to search if this one is killed
                self._put_all(store, islice(originals, limit))
            finally:
                bulk_ingest.add_topics(store, self._report.queues)

    def _resumed(self, store: MessageStore, originals: Iterator[Original]) -> Iterator[Original]:
        """Counts the messages that an interrupted run had stored; returns the remaining ones."""
        done, rest = already_stored(self._target.root, self._target.config, self._state.end, originals, self._validator)
        self._take(done)
        self._report.already_stored = sum(ack.stored for _, ack in done)
        if done:
            self._save(store)
        return rest

    def _put_all(self, store: MessageStore, originals: Iterator[Original]) -> None:
        pace = Pace(self._request.rate, bulk_ingest.CHUNK)
        for chunk in pace.chunks(originals):
            rows = [Row(number, original.message, original.reason) for number, original in enumerate(chunk)]
            self._take(zip(chunk, bulk_ingest.append(store, rows, self._validator), strict=True))
            if pace.is_save_due():
                self._save(store)
        self._report.replayed = self._report.topics.total() - self._report.already_stored
        limit = self._request.source.selection.limit
        self._state = self._state.ended(self._before, self._report.skipped, limit)
        self._save(store)

    def _take(self, answers: "Iterator[Answered] | list[Answered] | zip[Answered]") -> None:
        after, replayed, no = self._state.after, self._state.replayed, self._state.refused
        for original, ack in answers:
            self._report.take(original, ack)
            self._ids.write(original, ack)
            after = original.position
            replayed, no = replayed + ack.stored, no + (not ack.stored)
        self._state = replace(self._state, after=after, replayed=replayed, refused=no)

    def _save(self, store: MessageStore) -> None:
        """Flushes the store, then saves the position."""
        if self._request.state is None:
            return
        end = store.flush()
        fingerprint = states.target_fingerprint(self._target, end) if end else None
        state = self._state.passed(self._before, self._report.skipped.damage)
        self._state = replace(state, target=fingerprint, end=end, ids_bytes=self._ids.flush())
        self._state.save(self._request.state)


def _check(request: ReplayRequest) -> None:
    """Raises UsageError if a file is a device or inside a store, a store inside the other, or the rate is invalid."""
    source, target = request.source.path, request.target
    if is_inside(target, source) or is_inside(source, target):
        raise UsageError(f"{request.target}: is, contains or is inside the source {request.source.path}")
    check_files(request.source, request.ids, request.state)
    for place in (request.ids, request.state):
        if place is not None and any(is_inside(place, root) for root in (source, target)):
            raise UsageError(f"{place}: is inside the source or the target; name a file elsewhere")
    check_rate(request.rate)


def already_stored(
    target: Path, config: BrokerConfig, since: int, originals: Iterator[Original], validator: PutValidator
) -> tuple[list[Answered], Iterator[Original]]:
    """Returns the messages that are already in the target's log, with their answers, and an iterator over all others.

    Searches from the physical offset `since`, up to which the saved state covers the log, for messages after the saved
    position.
    """
    done: list[Answered] = []
    pending: list[Answered] = []
    with open_for_reading(target, config) as store:
        messages = store.messages(start=since)
        for original in originals:
            message = validator.prepared(original.message) if original.message is not None else None
            if not isinstance(message, OutgoingMessage):
                pending.append((original, ack_of(original, validator)))
                continue
            stored = next(
                (
                    candidate
                    for candidate in messages
                    if not isinstance(candidate, Damage) and _matches(candidate, message)
                ),
                None,
            )
            if stored is None:
                return done, chain((candidate for candidate, _ in pending), [original], originals)
            done += pending
            done.append((original, _ack(original, stored)))
            pending = []
    return done, chain((candidate for candidate, _ in pending), originals)


def ack_of(original: Original, validator: PutValidator) -> Ack:
    """Returns the answer that the target store would give to a message; stores nothing."""
    (answer,) = bulk_ingest.check([Row(0, original.message, original.reason)], validator)
    return answer


def _matches(stored: Message, expected: OutgoingMessage) -> bool:
    """Whether storing `expected` could have created the record `stored`; the store may have added properties."""
    if (stored.topic, stored.queue_id, stored.flag) != (expected.topic, expected.queue_id, expected.flag):
        return False
    values = properties.decode(expected.properties)
    return stored.raw_body == expected.body and values.items() <= stored.properties.items()


def _ack(original: Original, stored: Message) -> Ack:
    assert original.message is not None
    sent_to = original.message.topic, original.message.queue_id
    return Ack(
        0,
        PutStatus.PUT_OK,
        "",
        stored.topic,
        stored.queue_id,
        stored.queue_offset,
        stored.physical_offset,
        stored.offset_message_id,
        sent_to,
    )
