"""Checks the checkpoint, and the files that mark a clean or unclean shutdown.

Source: StoreCheckpoint, DefaultMessageStore.load and recover, IndexService.load (4.9.7, 5.5.0).
"""

from collections.abc import Iterable, Sequence

from msgspec import structs

from mqtool.errors import StoreError
from mqtool.formats import checkpoint as layout
from mqtool.formats import file_names
from mqtool.formats.checkpoint import Checkpoint
from mqtool.store import Store
from mqtool.store.files import read_file
from mqtool.store.paths import kind_of
from mqtool.verify.finding_collector import FindingCollector
from mqtool.verify.index_file import IndexFacts
from mqtool.verify.segment import DamagedRange
from mqtool.verify.survey import Survey

_OFFSETS = ("confirm_physical_offset", "logics_physical_offset")
_LAGGING = 1
"""Full index files that may be newer than the checkpoint: it is written a moment after a file is full."""


def check_checkpoint(
    survey: Survey,
    store: Store,
    newest: int,
    damages: Iterable[DamagedRange],
    index: Sequence[IndexFacts],
    collector: FindingCollector,
) -> None:
    """Checks the checkpoint; `newest` is the latest store timestamp in the log in ms, 0 if it contains no record."""
    path = survey.root / file_names.CHECKPOINT
    if not path.exists():
        if survey.segments and survey.end > 0:
            collector.add("checkpoint-missing", path, "no such file")
        return
    if not path.is_file():
        collector.add("checkpoint-not-file", path, f"expected a file, found a {kind_of(path.stat().st_mode)}")
        return
    try:
        data = read_file(path)
    except StoreError as error:
        collector.add("checkpoint-unreadable", path, str(error))
        return
    if len(data) != layout.FILE_SIZE:
        collector.add("checkpoint-size", path, f"expected {layout.FILE_SIZE} bytes, found {len(data)}")
    checkpoint = layout.parse(data)
    for name, value in structs.asdict(checkpoint).items():
        if value < 0 or (name == "master_flushed_offset" and not layout.is_possible_offset(value, survey.end)):
            collector.add("checkpoint-bad-value", path, f"{name} is {value}", position=layout.CHECKPOINT.offset(name))
    if survey.segments and not survey.live and not survey.has_dledger:
        _ahead(survey, checkpoint, newest, collector)
        if newest and not survey.ledger:
            evidence = _foreign(survey, store, checkpoint, damages)
            if evidence:
                collector.add("checkpoint-foreign", path, evidence)
    if not survey.live:  # a running broker writes it a while after the files
        _behind(survey, checkpoint, index, collector)


def _ahead(survey: Survey, checkpoint: Checkpoint, newest: int, collector: FindingCollector) -> None:
    path = survey.root / file_names.CHECKPOINT
    limits = [(name, newest, "the newest record was stored at") for name in layout.TIMES if newest]
    limits += [(name, survey.end, "the log ends at") for name in _OFFSETS]
    for name, limit, words in limits:
        value = getattr(checkpoint, name)
        if value > limit:
            position = layout.CHECKPOINT.offset(name)
            collector.add("checkpoint-ahead", path, f"{name} is {value}, {words} {limit}", position=position)


def _foreign(survey: Survey, store: Store, checkpoint: Checkpoint, damages: Iterable[DamagedRange]) -> str:
    """Returns why a checkpoint cannot be of this log; "" if it can.

    A broker takes places and times from its records. After a crash its times stay those of the last flush before, until
    the next message; meanwhile the records of that time may expire. So times decide only where nothing was deleted.
    """
    for name in _OFFSETS:
        place = getattr(checkpoint, name)
        inside = survey.min_offset < place < survey.end and not any(part.start <= place < part.end for part in damages)
        if inside and store.record_at(place) is None and store.commit_log.after_blank(place) == place:
            return f"{name} is {place}, where no record begins"
    if survey.min_offset > 0:
        return ""
    places = store.commit_log.first_record, survey.segments[survey.last_used].base
    times = [record.store_timestamp for record in map(store.record_at, places) if record is not None]
    oldest = min(times, default=0)  # the clock may have been set back meanwhile
    for name in layout.TIMES[:2]:
        if 0 < getattr(checkpoint, name) < oldest:
            return f"{name} is {getattr(checkpoint, name)}, the oldest record was stored at {oldest}"
    return ""


def _behind(survey: Survey, checkpoint: Checkpoint, index: Sequence[IndexFacts], collector: FindingCollector) -> None:
    """Reports full index files that end after the checkpoint's index time: a start after a crash deletes them."""
    shape = survey.index.shape
    if shape is None:
        return
    full = [facts for facts in index if facts.entries >= shape.places - 1 and not facts.bad_header]
    unsafe = [facts for facts in full if facts.header.end_timestamp > checkpoint.index_msg_timestamp]
    if len(unsafe) <= _LAGGING and not (unsafe and checkpoint == Checkpoint()):
        return
    path = survey.root / file_names.CHECKPOINT
    names = ", ".join(facts.path.name for facts in unsafe[:3]) + (", …" if len(unsafe) > 3 else "")
    evidence = (
        f"index_msg_timestamp is {checkpoint.index_msg_timestamp}; {len(unsafe)} full index file(s) end later: {names}"
    )
    code = "checkpoint-zero" if checkpoint == Checkpoint() else "checkpoint-behind"
    collector.add(code, path, evidence, position=layout.CHECKPOINT.offset("index_msg_timestamp"))


def check_shutdown(survey: Survey, collector: FindingCollector) -> None:
    """Checks the abort file."""
    path = survey.root / file_names.ABORT
    if path.is_dir():
        collector.add("abort-bad", path, "a directory")
    elif path.exists() and not survey.live:
        collector.add("abort-present", path, _process(survey))


def _process(survey: Survey) -> str:
    try:
        text = read_file(survey.root / file_names.ABORT, 4096).decode("ascii", "replace").strip()
    except StoreError as error:
        return str(error)
    process = f" (process {text})" if text.isdigit() else ""
    return (
        f"the broker{process} was not shut down cleanly: its next start scans the log and cuts it where it is damaged"
    )
