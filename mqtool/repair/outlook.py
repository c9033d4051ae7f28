"""Judges repairs: what a store holds, and what its next start would deliver.

One rule holds for every repair: afterwards, a start loses no message that was there before. `Comparison.lost_after`
is never more than `Comparison.already_lost`, the messages of which the store holds no intact record. Plans, runbooks
and salvage are all judged here, before any file changes place.
"""

import hashlib
import os
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from mqtool.commands import Opened, new_store_command
from mqtool.errors import MqtoolError, RefusedError
from mqtool.formats import file_names
from mqtool.formats.release import release_of
from mqtool.formats.topics import TopicQueue
from mqtool.records.number_sets import among, distinct, union
from mqtool.recovery.losses import (
    Claims,
    LossCount,
    claims_of_queue,
    confirmed_by,
    gone_of,
    rows_by_queue,
    without_moved,
)
from mqtool.recovery.mapped_files import SimulatedFile
from mqtool.recovery.predict import predict
from mqtool.recovery.proof import Proof, prove
from mqtool.recovery.reading import OK, QueueReading
from mqtool.recovery.settings import settings_of
from mqtool.repair.paths import tree_of_links
from mqtool.repair.plan import Forecast
from mqtool.repair.staged_files import Moves
from mqtool.store.config.broker_config import LOG_PATH_KEYS, BrokerConfig, ConfigSource
from mqtool.store.layout import place_of
from mqtool.store.store import Store, open_store

LOSSES = "losses"
"""Gate: after a repair a start loses no message that is still in the store."""

_EVER = 1 << 62
_NONE = np.empty(0, np.int64)


def release_for(store: Store, broker: str | None = None) -> str:
    """Returns the release that a repair is judged for: the given one, or the one that wrote the store."""
    return broker or str(store.version.release)


class Outlook(Struct, frozen=True, dict=True):
    """The content of one store and the outcome of its next start."""

    starts: bool  # whether the broker starts
    verdict: str  # the start in one line
    present: np.ndarray  # int64, ascending: physical offsets of intact and confirmed records of queues
    messages: np.ndarray  # int64, number of messages in each of them
    # Physical offsets at which the records of lost messages were, by queue and queue offset.
    gone: Mapping[TopicQueue, Mapping[int, int]]
    losses: LossCount  # by the start, as every command counts them
    served: np.ndarray  # int64, ascending: physical offsets of records that consumers get intact after the start
    # int64, ascending, by queue: queue offsets at which they get the record that belongs there.
    served_offsets: Mapping[TopicQueue, np.ndarray]

    @cached_property
    def digest(self) -> str:
        """Returns the SHA-256 over all but the words. Outlooks with equal digests are judged alike."""
        digest = hashlib.sha256(
            repr((self.starts, sorted((key, *at.items()) for key, at in self.gone.items()))).encode()
        )
        for array in (self.present, self.messages, self.served):
            digest.update(b"|" + array.astype(">i8").tobytes())
        for key, offsets in sorted(self.served_offsets.items()):
            digest.update(repr(key).encode() + offsets.astype(">i8").tobytes())
        return digest.hexdigest()


class Comparison(Struct, frozen=True):
    """A store before and after a repair, compared by the messages that were known before."""

    release: str  # release whose start is predicted
    losses: LossCount  # by a start before the repair
    # Messages lost before the repair that are to be kept: no intact record is left, and no start delivers them.
    already_lost: int
    unserved_after: int  # messages whose intact records stay in the log, and that no consumer gets after the repair
    # lost_before, lost_after: messages that consumers do not get after a start, with those that are lost already and
    # those that are not served; None if the broker does not start.
    lost_before: int | None
    lost_after: int | None
    removed: int  # messages whose intact records the repair removes without a request
    newly_lost: int  # messages that a start delivered before the repair and does not deliver after it
    total: int  # all known messages, including lost ones
    outcome: str  # digest of the outlook after the repair

    @property
    def is_repaired(self) -> bool:
        """Whether a start after the repair loses only what was lost already."""
        return self.forecast.is_repaired and not self.newly_lost

    @property
    def loses_messages(self) -> bool:
        """Whether the repair loses messages, directly or by the start that it makes possible."""
        if self.lost_after is None:
            return self.lost_before is not None or self.removed > 0
        if self.lost_before is None:
            return self.lost_after > self.already_lost
        return self.newly_lost > 0 or self.lost_after > max(self.lost_before, self.already_lost)

    @property
    def forecast(self) -> Forecast:
        """The numbers as a plan stores them."""
        after = None if self.lost_after is None else max(0, self.lost_after - self.already_lost)
        left = min(self.unserved_after, after or 0)
        losses = replace(self.losses, by_change=None if after is None else after - left)
        return Forecast(self.release, losses, left, self.outcome)

    def refusal(self, opened: Opened) -> "LossesError":
        """Returns the error that refuses the repair of a store."""
        return LossesError(
            self,
            f"after this change a start would lose messages that are still in the store ({self.forecast.words})",
            opened,
        )


class NotInPlaceError(RefusedError):
    """A repair in place was refused; a new store with every intact record is the alternative."""

    def __init__(self, gate: str, why: str, opened: Opened) -> None:
        self.why = why  # what would be wrong after it
        self.next_step = new_store_command(opened)  # makes the new store
        copy = f"A new store keeps every intact record: {self.next_step}; add --with COPY if there is another copy"
        super().__init__(gate, f"{why}, so nothing was changed. {copy}", Path(opened.root))


class LossesError(NotInPlaceError):
    """A repair was refused because after it a start would lose messages that the store holds."""

    def __init__(self, comparison: Comparison, why: str, opened: Opened) -> None:
        super().__init__(LOSSES, why, opened)
        self.comparison = comparison  # the store before and after the repair


class IntendedLog(Struct, frozen=True):
    """The part of a log that a repair is meant to keep; a user may ask to cut off its front or its end."""

    start: int = 0  # and end: physical offsets; messages outside do not count
    end: int = _EVER
    # int64, ascending: physical offsets of records that do not count either.
    purged: np.ndarray = field(default_factory=lambda: _NONE)
    moves: Moves | None = None  # where the repair moves records to; None if it moves none

    def inside(self, physical: np.ndarray) -> np.ndarray:
        """Returns a bool for each physical offset: whether it is to be kept."""
        inside = (physical >= self.start) & (physical < self.end)
        return np.asarray(inside & ~among(physical, self.purged))

    def moved(self, physical: np.ndarray) -> np.ndarray:
        """Returns the places of records after the repair; -1 for records that it leaves out."""
        return physical if self.moves is None else self.moves.records(physical)


def outlook(root: Path, release: str, config: ConfigSource = None) -> "Outlook | str":
    """Returns the outlook of a store, or the reason why it cannot be predicted."""
    try:
        return _outlook(root, release, config)
    except MqtoolError as error:
        return str(error)


def _outlook(root: Path, release: str, config: ConfigSource) -> Outlook:
    start = predict(root, release, config)
    with open_store(root, config) as store:
        settings = settings_of(root, release_of(release), store.config)
        segments = [
            SimulatedFile(file.path, file.base, file.size)
            for file in (*store.layout.commit_log.files, *store.layout.misplaced)
        ]
        proof = prove(settings, segments)
        log_min = store.commit_log.min_offset
        of_queues = {(item.topic, item.queue_id): claims_of_queue(item, log_min) for item in store.disk_queues()}
        claims = without_moved(proof, of_queues)
        confirmed = confirmed_by(proof, claims)
        misplaced = store.layout.misplaced
    readings: dict[TopicQueue, QueueReading] = {}
    if start.runs:
        named = ((_key(name), reading) for name, reading in start.readings.items())
        readings = {key: reading for key, reading in named if file_names.is_directory_name(key[0])}
    gone = {
        key: dict(zip(lost.offsets.tolist(), lost.physical.tolist(), strict=True))
        for key, lost in gone_of(proof, claims, readings, confirmed).items()
    }
    belonging = _belonging(proof, claims)
    served, served_offsets = _served(readings)
    for file in misplaced:  # a broker reads them at the offsets that their names state
        if file.path.name.isdecimal() and int(file.path.name) < _EVER:
            shift = served - int(file.path.name)
            moved = (shift >= 0) & (shift < file.size) & ~among(served, proof.physical)
            served = distinct(np.where(moved, file.base + shift, served))
    present = np.concatenate([proof.physical[belonging], confirmed])
    messages = np.concatenate([np.maximum(proof.messages[belonging], 1), np.ones(len(confirmed), np.int64)])
    order = np.argsort(present, kind="stable")
    return Outlook(
        start.runs,
        start.verdict,
        present[order],
        messages[order],
        gone,
        start.count() if start.runs else LossCount(sum(map(len, gone.values())), None),
        served,
        served_offsets,
    )


def _key(name: str) -> TopicQueue:
    topic, _, queue_id = name.rpartition("/")
    return topic, int(queue_id)


def _belonging(proof: Proof, claims: Mapping[TopicQueue, Claims]) -> np.ndarray:
    """Returns the records that belong in a queue, unless a unit of another queue claims them.

    Of two records that state the same place in a queue, the one to which the queue's unit leads belongs. The fields
    that name a queue have no checksum. A topic name that would lead out of the store gets no queue here, whatever a
    broker does with it.
    """
    claimed = np.concatenate([_NONE, *(claim.physical for claim in claims.values())])
    belongs = ~among(proof.physical, claimed)
    for key, rows in rows_by_queue(proof).items():
        if key in claims:
            belongs[rows] |= among(proof.physical[rows], claims[key].physical)
            belongs[rows] &= ~_is_taken(proof, rows, claims[key])
    inside = np.array([file_names.is_directory_name(topic) for topic, _ in proof.queues], bool)
    return np.flatnonzero(belongs & proof.queued & proof.decodable & inside[proof.queue])


def _is_taken(proof: Proof, rows: np.ndarray, claims: Claims) -> np.ndarray:
    """Whether the unit at the place that a record states leads to another record that states it."""
    rows_by_place = rows[np.argsort(proof.physical[rows], kind="stable")]
    physical = proof.physical[rows_by_place]
    if not len(physical):
        return np.zeros(0, bool)
    at = np.minimum(np.searchsorted(physical, claims.physical), len(physical) - 1)
    confirmed = physical[at] == claims.physical
    confirmed &= proof.queue_offset[rows_by_place[at]] == claims.offsets
    is_stated = among(proof.queue_offset[rows], claims.offsets[confirmed])
    return is_stated & ~among(proof.physical[rows], claims.physical[confirmed])


def _served(readings: Mapping[TopicQueue, QueueReading]) -> tuple[np.ndarray, dict[TopicQueue, np.ndarray]]:
    physical, offsets = [_NONE], {}
    for key, reading in readings.items():
        ok = reading.states == OK
        physical.append(reading.physical[ok])
        offsets[key] = distinct(reading.offsets[ok & (reading.stated == reading.offsets)])
    return distinct(np.concatenate(physical)), offsets


def compare(before: Outlook, after: Outlook, release: str, intended: IntendedLog | None = None) -> Comparison:
    """Compares a store before and after a repair, by the messages that were known before."""
    kept = intended or IntendedLog()
    known = union(before.present, before.served)
    known = known[kept.inside(known)]
    counts = np.ones(len(known), np.int64)
    mine = among(known, before.present)
    counts[mine] = before.messages[np.searchsorted(before.present, known[mine])]
    now = kept.moved(known)
    gone = {
        key: [at for at, place in places.items() if kept.start <= place < kept.end]
        for key, places in before.gone.items()
    }
    gone_after = sum(len(np.setdiff1d(at, after.served_offsets.get(key, _NONE))) for key, at in gone.items())
    served_before, served_after = among(known, before.served), among(now, after.served)
    already_lost = sum(map(len, gone.values()))
    remaining = union(after.present, after.served)
    return Comparison(
        release,
        before.losses,
        already_lost,
        after.losses.unserved,
        already_lost + int(counts[~served_before].sum()) if before.starts else None,
        gone_after + int(counts[~served_after].sum()) if after.starts else None,
        int(counts[~among(now, remaining)].sum()),
        int(counts[served_before & ~served_after].sum()),
        int(counts.sum()) + already_lost,
        after.digest,
    )


class Preview:
    """Judges changes of a store before they are applied, on trees of links that look like the changed store.

    The broker's lock is ignored: the start is predicted for a time when no other process has the store open.
    """

    def __init__(self, store: Store, broker: str | None = None) -> None:
        """Takes the store in its present state, and the release that will be started, if it was given."""
        self._is_ledger = bool(store.layout.dledger_dirs)
        self._root = store.path
        self._config = store.config
        self.release = release_for(store, broker)  # release whose start is predicted
        self._last: tuple[Mapping[str, Path], Collection[str], Outlook | str] | None = None

    @cached_property
    def before(self) -> "Outlook | str":
        """The outlook of the store in its present state, or the reason why there is none."""
        return self._outlook({}, frozenset())

    @cached_property
    def unchanged(self) -> "Comparison | str":
        """The store compared with itself: what is lost already, and what a start loses."""
        return self.before if isinstance(self.before, str) else compare(self.before, self.before, self.release)

    def compare(
        self, files: Mapping[str, Path], removed: Collection[str], intended: IntendedLog | None = None
    ) -> "Comparison | str":
        """Compares the store with the result of a change: new files by path relative to the root, and removed paths."""
        if isinstance(self.before, str):
            return self.before
        after = self.after(files, removed)
        return after if isinstance(after, str) else compare(self.before, after, self.release, intended)

    def after(self, files: Mapping[str, Path], removed: Collection[str]) -> "Outlook | str":
        """Returns the outlook of the changed store, or the reason why there is none; see `compare`."""
        if self._last is None or self._last[:2] != (files, removed):
            self._last = files, removed, self._outlook(files, removed)
        return self._last[2]

    def compare_with(self, root: Path) -> "Comparison | str":
        """Compares the store with another store that was made from it."""
        if isinstance(self.before, str):
            return self.before
        after = outlook(root, self.release, self._config.for_copy(root))
        return after if isinstance(after, str) else compare(self.before, after, self.release)

    def _outlook(self, files: Mapping[str, Path], removed: Collection[str]) -> "Outlook | str":
        if self._is_ledger:
            return "a DLedger log: losses are only compared for plain CommitLogs"
        try:
            with self.tree(files, removed) as (directory, config):
                result = outlook(directory, self.release, config)
        except OSError as error:
            return f"{error.filename}: cannot create a preview: {error.strerror}"
        return result if isinstance(result, Outlook) else result.replace(str(directory), str(self._root))

    @contextmanager
    def tree(self, files: Mapping[str, Path], removed: Collection[str]) -> Iterator[tuple[Path, BrokerConfig]]:
        """Creates a tree of links that looks like the changed store, for the duration of the context.

        Yields its root, and the broker keys to open it with. Raises OSError if no such tree can be made.
        """
        with tempfile.TemporaryDirectory(prefix="mqtool-preview-") as directory:
            _link(self._root, Path(directory), files, removed)
            config = dict(self._config.values)
            if "storePathRootDir" in config:
                config["storePathRootDir"] = directory
            for key in LOG_PATH_KEYS:
                if key in config:
                    places = (self._in_tree(path, Path(directory)) for path in self._config.paths(key))
                    config[key] = ",".join(map(str, places))
            with tree_of_links(Path(directory)):
                yield Path(directory), replace(self._config, values=config)

    def _in_tree(self, path: Path, directory: Path) -> Path:
        """Returns where a configured directory is in a tree that looks like the store, however the path is spelled.

        A directory outside of the store stays where it is: no change concerns it.
        """
        place = place_of(path, self._root, self._config) or path
        return directory / place.relative_to(self._root) if place.is_relative_to(self._root) else place.absolute()


def _link(root: Path, directory: Path, files: Mapping[str, Path], removed: Collection[str]) -> None:
    """Links a directory tree that looks like the changed store, without the lock and mqtool's own files.

    A directory that is a link, for instance to another disk, becomes a directory of links. One that leads back to a
    directory above it is left out.
    """
    for where, directories, names in os.walk(root, followlinks=True):
        below = Path(where).relative_to(root)
        if below == Path():
            directories[:] = [name for name in directories if name != file_names.ASIDE]
        directories[:] = [name for name in directories if not _leads_up(Path(where), name)]
        for name in directories:
            (directory / below / name).mkdir()
        for name in names:
            inner = (below / name).as_posix()
            if inner not in files and inner not in removed and inner != file_names.LOCK:
                (directory / inner).symlink_to((Path(where) / name).absolute())
    for name, path in files.items():
        target = directory / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(path.resolve())


def _leads_up(where: Path, name: str) -> bool:
    """Whether a directory is a link to one of its ancestors, so that following it would not end."""
    path = where / name
    return path.is_symlink() and where.resolve().is_relative_to(path.resolve())
