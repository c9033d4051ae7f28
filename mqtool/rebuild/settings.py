"""What the broker was set to, as far as it shapes derived files, and where each setting is known from."""

from dataclasses import dataclass, field

from mqtool.errors import UsageError
from mqtool.formats import batch_consume_queue, consume_queue, consume_queue_ext, file_names, index_file
from mqtool.scan.dispatched import DELAY_LEVELS, DispatchRules, parse_delay_levels
from mqtool.store.layout import Known
from mqtool.store.store import Store

DEFAULT = "the broker's default: neither file nor configuration tells"
_INDEX_TAGS_SINCE = (5, 5)


@dataclass(frozen=True)
class Settings:
    """Sizes and rules.

    Attributes:
        rules: for dispatch.
        consume_queue_size, batch_consume_queue_size, consume_queue_ext_size: bytes of a file.
        has_extension: whether queues have a ConsumeQueueExt (enableConsumeQueueExt).
        index_slots, index_entries: maxHashSlotNum, maxIndexNum.
        evidence: where each of these is known from, by name.
    """

    rules: DispatchRules
    consume_queue_size: int
    batch_consume_queue_size: int
    consume_queue_ext_size: int
    has_extension: bool
    index_slots: int
    index_entries: int
    evidence: dict[str, str] = field(default_factory=dict)


def settings_of(store: Store, broker_version: str | None = None) -> Settings:
    """Finds the settings of a store's broker: its configuration first, then what the store shows, then defaults.

    Args:
        store: opened, with its configuration.
        broker_version: "4.9", "5.1", "5.5" …, to overrule what the store tells of its release.

    Raises:
        UsageError: `broker_version` is no release; a configured number is none.
    """
    evidence: dict[str, str] = {}

    def size(name: str, known: Known | None, default: int) -> int:
        evidence[name] = known.evidence if known else DEFAULT
        return known.value if known else default

    layout = store.layout
    slots, entries = _index_shape(store, evidence)
    return Settings(
        _rules(store, broker_version, evidence),
        size("consume_queue_size", layout.consume_queue_size, consume_queue.DEFAULT_FILE_SIZE),
        size("batch_consume_queue_size", layout.batch_consume_queue_size, batch_consume_queue.DEFAULT_FILE_SIZE),
        size("consume_queue_ext_size", layout.consume_queue_ext_size, consume_queue_ext.DEFAULT_FILE_SIZE),
        _extension(store, evidence), slots, entries, evidence,
    )  # fmt: skip


def _rules(store: Store, broker_version: str | None, evidence: dict[str, str]) -> DispatchRules:
    line = broker_version or store.version.line
    evidence["broker_version"] = "given" if broker_version else store.version.evidence
    release = _release(line)
    levels = store.config.values.get("messageDelayLevel")
    evidence["delay_levels"] = store.config.source if levels else DEFAULT
    multi_dispatch = store.config.flag("enableMultiDispatch")
    evidence["multi_dispatch"] = "the records themselves" if multi_dispatch is None else store.config.source
    return DispatchRules(
        index_tags=release >= _INDEX_TAGS_SINCE,
        multi_dispatch=True if multi_dispatch is None else multi_dispatch,
        lmq_everywhere=release < (5,),
        delay_levels=parse_delay_levels(levels or DELAY_LEVELS),
        batch_topics=_batch_topics(store),
    )


def _release(line: str | None) -> tuple[int, ...]:
    """Reads "5.5"; a store that does not tell its release is taken for one of the newest."""
    if line is None:
        return _INDEX_TAGS_SINCE
    try:
        return tuple(int(part) for part in line.split(".")[:2])
    except ValueError as error:
        raise UsageError(f"broker version {line!r}: expected a release such as 4.9 or 5.5") from error


def _batch_topics(store: Store) -> frozenset[str]:
    configured = {topic.topic_name for topic in store.metadata.topics.values() if topic.queue_type == "BatchCQ"}
    return frozenset(configured | {queue.topic for queue in store.queues() if queue.is_batch})


def _extension(store: Store, evidence: dict[str, str]) -> bool:
    configured = store.config.flag("enableConsumeQueueExt")
    if configured is not None:
        evidence["has_extension"] = store.config.source
        return configured
    exists = (store.path / file_names.CONSUME_QUEUE_EXT).is_dir()
    evidence["has_extension"] = f"{file_names.CONSUME_QUEUE_EXT}/ {'exists' if exists else 'does not exist'}"
    return exists


def _index_shape(store: Store, evidence: dict[str, str]) -> tuple[int, int]:
    """Returns maxHashSlotNum and maxIndexNum."""
    configured = [store.config.integer(key) for key in ("maxHashSlotNum", "maxIndexNum")]
    defaults = (index_file.DEFAULT_SLOTS, index_file.DEFAULT_ENTRIES)
    files = store.index_files()
    proved = next((file for file in files if file.size == index_file.file_size(*defaults)), None)
    shown: tuple[int | None, int | None] = (None, None) if proved is None else defaults
    if proved is None and None in configured:
        proved = next((file for file in files if file.slot_count), None)
        shown = (None, None) if proved is None else (proved.slot_count, proved.max_entries)
    found = []
    for name, given, seen, default in zip(("index_slots", "index_entries"), configured, shown, defaults, strict=True):
        if given is not None and given <= 0:
            raise UsageError(f"{store.config.source}: {name}: expected a positive number, found {given}")
        seen_where = DEFAULT if seen is None or proved is None else f"index file {proved.path.name}"
        evidence[name] = seen_where if given is None else store.config.source
        found.append(given or seen or default)
    return found[0], found[1]
