"""Finds messages through the index, or by a scan where the index cannot serve; resolves addresses: offsets, ids, keys.

The index knows hashes of topics with keys, not keys, and only of dispatched records. So the records that it names are
read and tested, and the parts of the log that its files do not cover are scanned. It cannot be asked for a topic whose
name is unknown (its queues and configuration were deleted), and has no entries of rolled-back transactions and of the
single messages of inner batches: a small log is scanned for these, of a larger one the answer says so.
"""

import contextlib
import re
from collections.abc import Iterable, Iterator
from glob import escape

from msgspec import Struct, field
from msgspec.structs import asdict, replace

from mqtool.choices import SearchMethod
from mqtool.commands import Opened, command
from mqtool.errors import CorruptionError, FormatError, StoreError, UnreadableError, UsageError
from mqtool.formats import commit_log, hosts, index_file
from mqtool.records.damage import Damage, DamageKind
from mqtool.store.index_file import IndexFile
from mqtool.store.log.commit_log import CommitLog
from mqtool.store.log.message import Message, explode
from mqtool.store.log.selection import Selection, literal_names
from mqtool.store.queues import pull
from mqtool.store.queues.get_message import GetStatus
from mqtool.store.store import Store
from mqtool.words import size

_LARGEST = (1 << 63) - 1
_EVER = (0, _LARGEST)
_ALL = 1 << 31
MAX_SCANNED = 8 << 20
"""Maximum number of bytes that a look-up by key scans between two parts of the log that the index covers."""
SMALL_LOG = 8 << 20
"""Bytes of a log that is scanned even where the index covers it."""
_NOT_NAMED = "rolled-back transactions, messages of inner batches, and topics without queue and configuration"
MAX_READ = 10_000
"""Maximum number of records that it reads, oldest first; any number of messages may share a key."""

_NUMBER = re.compile(r"\d{1,19}", re.ASCII)

_PLACE = re.compile(r"(?P<topic>.+)/(?P<queue>\d{1,10})@(?P<offset>\d{1,19})", re.ASCII)

GRAMMAR = (
    "a physical offset such as 4096, a place such as TOPIC/QUEUE@OFFSET (Orders/0@3), an offset message id "
    "(32 or 56 hexadecimal digits), or a unique key"
)


class SearchResult(Struct, frozen=True):
    """An answer in progress."""

    methods: list[str]  # how each part of the log is searched, in words
    items: Iterator[Message | Damage]  # messages by physical offset, and damage found on the way


def find_messages(store: Store, method: SearchMethod = SearchMethod.AUTO, **criteria: object) -> SearchResult:
    """Finds messages by criteria as for `Store.messages`; AUTO uses an index if there is one and keys are given.

    Raises UsageError if the index is requested but cannot serve, or the selection is invalid.
    """
    selection = Selection.of(**criteria)
    files = usable_files(store)
    terms = selection.unique_keys or selection.keys
    if method is SearchMethod.INDEX and not (terms and files):
        why = "no index file has entries" if terms else "it contains only keys and unique keys"
        raise UsageError(f"the index cannot serve this search: {why}; look by scan")
    if method is SearchMethod.SCAN or not terms or not files:
        why = "" if method is SearchMethod.SCAN else "; no key was given" if not terms else "; there is no index"
        items = store.messages(**criteria, inner_batches=True)
        return SearchResult([f"scan of {size(_extent(store, selection))}{why}"], items)
    search = _IndexSearch(store, selection, files, terms, scans_rest=method is SearchMethod.AUTO)
    return SearchResult(search.methods(), _limited(search.items(), selection.limit))


class KeyMatches(Struct, frozen=True):
    """The records that a term names."""

    messages: list[Message]  # those with the term as unique key or as one of their keys, by physical offset
    damage: list[Damage]  # found in their place
    unread: int  # bytes of the log that the index does not cover and that were too many to scan
    more: int = 0  # records that the index names for the term and that were too many to read


def messages_by_key(store: Store, term: str) -> KeyMatches:
    """Returns the records of all topics that have a term as unique key or key, by the index."""
    search, unread = _IndexSearch(store, Selection.of(), usable_files(store), (term,), scans_rest=True), 0
    parts = search._gaps()
    offsets = sorted(search._offsets())
    items = [item for offset in offsets[:MAX_READ] for item in search._read(offset)]
    for start, end in parts:
        if end - start > MAX_SCANNED:
            unread += end - start
        else:
            items += store.messages(start=start, end=end)
    return _matches(term, items, unread, len(offsets[MAX_READ:]))


def is_small(log: CommitLog) -> bool:
    """Whether a log is so short that a look-up of one message scans it."""
    return log.max_offset - log.min_offset <= SMALL_LOG


def messages_by_scan(store: Store, term: str) -> KeyMatches:
    """Returns the records that have a term as unique key or key, by a scan; `unread` is the whole log if that is long.

    For records that the index does not name.
    """
    log = store.commit_log
    if not is_small(log):
        return KeyMatches([], [], log.max_offset - log.min_offset)
    return _matches(term, store.messages(keys=[term], inner_batches=True), 0, 0)


def _matches(term: str, items: Iterable[Message | Damage], unread: int, more: int) -> KeyMatches:
    named: dict[tuple[int, int], Message] = {}
    damage: dict[int, Damage] = {}
    selection = Selection.of(keys=[term])
    for item in items:
        if isinstance(item, Damage):
            damage.setdefault(item.start, item)
            continue
        for message in selection.matching(item):
            named[message.physical_offset, message.batch_index or 0] = message
    return KeyMatches([named[place] for place in sorted(named)], list(damage.values()), unread, more)


def usable_files(store: Store) -> dict[IndexFile, tuple[int, int]]:
    """Returns the index files that can be asked, oldest first, and of each the first and last record that it names."""
    usable = {}
    for file in store.index_files():
        with contextlib.suppress(StoreError):  # `info` and `verify` name those that cannot be read
            if covered := file.covered():
                usable[file] = covered
    return usable


def uncovered(store: Store, covered: Iterable[tuple[int, int]], low: int, high: int) -> list[tuple[int, int]]:
    """Returns the parts of a range that no index file covers, with the records next to them, in order.

    Some keys of a record next to such a part may be in a file that is missing. `covered` are the physical offsets of
    the first and the last record that each usable file names.
    """
    gaps, last = [], -1
    for begin, newest in sorted(covered):
        if begin > last and begin > (_end_of(store, last) if last >= 0 else low):
            gaps.append((last, begin + 1))
        last = max(last, newest)
    if high > (_end_of(store, last) if last >= 0 else low):
        gaps.append((last, high))
    clipped = [(max(start, low), min(until, high)) for start, until in gaps]
    return [(start, until) for start, until in clipped if start < until]


def _end_of(store: Store, offset: int) -> int:
    """Returns the physical offset after a record and a BLANK that follows it; its start if there is no record."""
    log = store.commit_log
    head = log.read(offset, commit_log.FRAME.size)
    size, magic = commit_log.FRAME.unpack(head) if len(head) == commit_log.FRAME.size else (0, 0)
    is_record = magic in commit_log.RECORD_MAGICS and size >= commit_log.MIN_RECORD_SIZE
    return log.after_blank(offset + size) if is_record else offset


def indexed_offsets(files: Iterable[IndexFile], topics: Iterable[str], terms: Iterable[str]) -> set[int]:
    """Returns physical offsets of records that may have one of some keys or unique keys: only hashes are compared."""
    known = list(terms)
    hashes = {index_file.key_hash(index_file.key_text(topic, term)) for topic in topics for term in known}
    return {offset for file in files for value in hashes for offset in file.lookup(value, *_EVER, _ALL)}


def _extent(store: Store, selection: Selection) -> int:
    low = store.commit_log.min_offset if selection.start is None else selection.start
    high = store.commit_log.max_offset if selection.end is None else selection.end
    return max(0, high - low)


def _limited(items: Iterator[Message | Damage], limit: int | None) -> Iterator[Message | Damage]:
    left = limit
    if left == 0:
        return
    for item in items:
        yield item
        if left is not None and isinstance(item, Message):
            left -= 1
            if left == 0:
                return


class _IndexSearch(Struct):
    store: Store
    selection: Selection
    files: dict[IndexFile, tuple[int, int]]
    terms: tuple[str, ...]
    scans_rest: bool
    topics: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        known = {queue.topic for queue in self.store.queues()} | set(self.store.metadata.topics)
        known.update(literal_names(self.selection.topics))
        self.topics = sorted(topic for topic in known if self.selection.matches_topic(topic))

    @property
    def _bounds(self) -> tuple[int, int]:
        log, selection = self.store.commit_log, self.selection
        low = log.min_offset if selection.start is None else max(selection.start, log.min_offset)
        high = log.max_offset if selection.end is None else min(selection.end, log.max_offset)
        return low, max(low, high)

    def _gaps(self) -> list[tuple[int, int]]:
        return uncovered(self.store, self.files.values(), *self._bounds)

    def _scanned(self) -> list[tuple[int, int]]:
        if not self.scans_rest:
            return []
        return [self._bounds] if self._is_small else self._gaps()

    @property
    def _is_small(self) -> bool:
        low, high = self._bounds
        return high - low <= SMALL_LOG

    def methods(self) -> list[str]:
        """Returns what will be done, in words."""
        first, last = (
            min(covered[0] for covered in self.files.values()),
            max(bounds[1] for bounds in self.files.values()),
        )
        extent = f"physical offsets {first} to {_end_of(self.store, last)}"
        words = [f"index: {len(self.files)} files, {len(self.topics)} topics, {extent}"]
        scanned = sum(end - start for start, end in self._scanned())
        if scanned:
            words.append(f"scan of {size(scanned)} that the index does not cover{' or name' if self._is_small else ''}")
        if not self.scans_rest or not self._is_small:
            words[0] += f" (without {_NOT_NAMED}{'; --by scan finds these' if self.scans_rest else ''})"
        return words

    def items(self) -> Iterator[Message | Damage]:
        """Yields the results, in the order of the log."""
        scanned = self._scanned()
        named = [at for at in self._offsets() if not any(start <= at < end for start, end in scanned)]
        for start, end in sorted([*scanned, *((offset, offset) for offset in named)]):
            yield from self._scan(start, end) if start < end else self._read(start)

    def _offsets(self) -> set[int]:
        return indexed_offsets(self.files, self.topics, self.terms)

    def _scan(self, start: int, end: int) -> Iterator[Message | Damage]:
        criteria = asdict(self.selection)
        return self.store.messages(**{**criteria, "start": start, "end": end, "limit": None}, inner_batches=True)

    def _read(self, offset: int) -> Iterator[Message | Damage]:
        log = self.store.commit_log
        if not log.min_offset <= offset < log.max_offset:
            return  # of a record that has expired or been cut off: no defect of the log
        try:
            message = self.store.message_at(offset)
        except UnreadableError as error:
            yield log.unreadable_at(offset) or Damage(
                offset, offset + 1, DamageKind.UNREADABLE, error.reason, error.path
            )
            return
        except StoreError:  # the index outlives cut records, which are no damage
            if damage := log.damage_at(offset):
                yield replace(damage, detail=f"the index names a record there; {damage.detail}")
            return
        selected = self._selected(message)
        if selected:
            damage = crc_damage(message)
            yield from [damage] if damage else selected

    def _selected(self, message: Message) -> list[Message]:
        selection = self.selection
        in_time = (selection.begin_time is None or message.store_timestamp >= selection.begin_time) and (
            selection.end_time is None or message.store_timestamp < selection.end_time
        )
        in_range = (selection.start is None or message.physical_offset >= selection.start) and (
            selection.end is None or message.physical_offset < selection.end
        )
        in_queue = selection.queue_id is None or message.queue_id == selection.queue_id
        is_there = in_time and in_range and in_queue and selection.matches_topic(message.topic)
        return selection.matching(message) if is_there else []


def crc_damage(message: Message) -> Damage | None:
    """Returns the damage of a message whose stored body does not match its CRC, otherwise None.

    An empty body has no CRC, and a stored CRC of 0 counts as unknown, as in walks of the log.
    """
    computed = commit_log.body_crc(message.raw_body)
    if not message.raw_body or message.body_crc in (0, computed):
        return None
    detail = f"body CRC stored {message.body_crc:08x}, computed {computed:08x}"
    end = message.physical_offset + message.store_size
    return Damage(message.physical_offset, end, DamageKind.BAD_CRC, detail)


class AddressMatches(Struct, frozen=True):
    """The messages at an address."""

    messages: list[Message]  # none, one, or several with the same unique key
    method: str  # how the address was interpreted
    damage: list[Damage]  # found in place of a message or in it
    is_unambiguous: bool = False  # the address has only one interpretation
    missing: str = ""  # of an unambiguous address: why nothing was found, and the command that helps


def resolve(store: Store, address: str) -> AddressMatches:
    """Returns the messages at an address.

    It is a physical offset (digits), `topic/queue@offset`, an offset message id (32 or 56 hexadecimal digits) or a
    unique key (anything else). An id that may be either is tried as an offset id first; it is one if the record there
    has exactly this id. Raises UsageError if the address looks like an incomplete place in a queue, and no message has
    it as its unique key.
    """
    if _is_physical_offset(address):
        return _at(store, int(address))
    place = _PLACE.fullmatch(address)
    if place:
        return _in_queue(store, place["topic"], int(place["queue"]), int(place["offset"]))
    by_id = _by_offset_id(store, address)
    if by_id and by_id.messages[0].offset_message_id == address.upper():
        return by_id
    by_key = _by_unique_key(store, address)
    if not by_key.messages and by_id is None and re.search("[/@]", address):
        raise UsageError(f"{address!r} is not an address: expected {GRAMMAR}")
    if by_key.messages or by_id is None:
        return by_key
    stated = by_id.messages[0].offset_message_id
    how = f"offset message id of another broker address: the record there has {stated}"
    return AddressMatches(by_id.messages, how, by_id.damage)


def is_unique_key(address: str) -> bool:
    """Whether an address can only be a unique key, which is found by the index or by a scan of the log."""
    if _PLACE.fullmatch(address) or _is_physical_offset(address):
        return False
    try:
        hosts.parse_offset_id(address)
    except FormatError:
        return True
    return False


def _is_physical_offset(address: str) -> bool:
    return _NUMBER.fullmatch(address) is not None and int(address) <= _LARGEST


def _at(store: Store, physical_offset: int) -> AddressMatches:
    how, log = "physical offset", store.commit_log
    try:
        return replace(_checked(store.message_at(physical_offset), how), is_unambiguous=True)
    except CorruptionError as error:
        if damage := log.damage_at(physical_offset):
            return AddressMatches([], how, [damage], missing="the log is damaged there")
        return AddressMatches([], how, [], missing=f"{error}; {_command(store, 'info')} shows the bounds")


def _command(store: Store, name: str) -> str:
    return f"`{command(name, Opened(store.path, store.config.file))}`"


def _checked(message: Message, method: str) -> AddressMatches:
    damage = crc_damage(message)
    return AddressMatches([message], method, [damage] if damage else [])


def _by_offset_id(store: Store, address: str) -> AddressMatches | None:
    try:
        parsed = hosts.parse_offset_id(address)
        return _checked(store.message_at(parsed.physical_offset), "offset message id")
    except (FormatError, CorruptionError):
        return None


def _by_unique_key(store: Store, address: str) -> AddressMatches:
    search = find_messages(store, unique_keys=[address])
    items = list(search.items)
    messages = [item for item in items if isinstance(item, Message)]
    damage = [item for item in items if isinstance(item, Damage)]
    how = f"unique key, by {' and '.join(search.methods)}"
    return AddressMatches(messages, how, damage)


def _in_queue(store: Store, topic: str, queue_id: int, queue_offset: int) -> AddressMatches:
    how = "queue offset"
    result = store.get_message(topic, queue_id, queue_offset, 1)
    if result.damage:
        place = f"its record at physical offset {result.damage[0].start} is damaged"
        return AddressMatches([], how, result.damage, missing=place)
    if result.status is not GetStatus.FOUND:
        known = f"{result.status.value}: the queue has {result.min_offset} to {result.max_offset}, end exclusive"
        if store.queue(topic, queue_id) is None:
            known = store.unread_queues or f"there is no queue {queue_id} of topic {topic}"
        return AddressMatches([], how, [], missing=known + _in_log(store, topic, queue_id, queue_offset))
    messages = [part for message in result.messages for part in explode(message) if part.queue_offset == queue_offset]
    damage = [bad for message in result.messages if (bad := crc_damage(message))]
    return AddressMatches(messages or result.messages, how, damage, is_unambiguous=True)


def _in_log(store: Store, topic: str, queue_id: int, queue_offset: int) -> str:
    """Returns, in words, where the log has a record whose message is missing in its queue; "" if it has none."""
    if not is_small(store.commit_log):
        scan = command("find", Opened(store.path, store.config.file), "--topic", escape(topic), "--queue", queue_id)
        return f"; `{scan}` searches the log for it"
    for item in store.messages(topics=[escape(topic)], queue_id=queue_id, inner_batches=True):
        if isinstance(item, Message) and item.queue_offset == queue_offset and (words := not_queued(store, item)):
            return f"; {words}"
    return ""


def not_queued(store: Store, message: Message) -> str:
    """Returns, in words, that a queue lacks a message of the log, and the command that helps; "" if it does not."""
    if not commit_log.is_queued(message.sys_flag) or store.unread_queues or store.unlisted:
        return ""
    queue = store.queue(message.topic, message.queue_id)
    unit = None if queue is None else pull.unit_at(queue, message.queue_offset)
    if unit is not None and unit.physical_offset == message.physical_offset:
        return ""
    place = f"its record is in the log at physical offset {message.physical_offset}"
    lacks = f"not in its queue {message.topic}/{message.queue_id}, so no consumer gets it"
    return f"{place}, but {lacks}: {helps(store)}"


def helps(store: Store) -> str:
    """Returns which command helps where something is wrong, as a sentence."""
    return f"{_command(store, 'verify')} shows what to do"
