"""Broker settings that affect derived files, and the evidence for each."""

from msgspec import Struct, field

from mqtool.errors import UsageError
from mqtool.formats import consume_queue, file_names
from mqtool.formats.release import parse
from mqtool.formats.topics import SCHEDULE_TOPIC
from mqtool.records.dispatch import DispatchRules
from mqtool.store.config.rules import DELAY_LEVELS_KEY, delays_of, rules_of
from mqtool.store.file_sizes import KnownSize
from mqtool.store.index_file import DEFAULT_SHAPE, Shape, configured_shape, shape_of
from mqtool.store.store import Store

DEFAULT = "the broker's default: no file and no configuration states it"


class RebuildSettings(Struct, frozen=True):
    """Sizes and rules."""

    rules: DispatchRules  # for dispatch
    consume_queue_size: int  # and batch_consume_queue_size, consume_queue_ext_size: file sizes in bytes
    batch_consume_queue_size: int
    consume_queue_ext_size: int
    has_extension: bool  # whether queues have a ConsumeQueueExt (enableConsumeQueueExt)
    index_slots: int  # and index_entries: maxHashSlotNum, maxIndexNum
    index_entries: int
    evidence: dict[str, str] = field(default_factory=dict)  # the source of each of these, by name


def settings_of(store: Store, broker_version: str | None = None) -> RebuildSettings:
    """Determines a broker's settings: from its configuration, else from the store's files, else the defaults.

    A version, "4.9", "5.1", "5.5" …, overrides the release detected from the store. Raises UsageError if it is not a
    release, or a configured number is invalid.
    """
    evidence: dict[str, str] = {}

    def size(name: str, known: KnownSize | None, default: int) -> int:
        evidence[name] = known.evidence if known else DEFAULT
        return known.value if known else default

    layout = store.layout
    shape = _index_shape(store, evidence)
    return RebuildSettings(
        _rules(store, broker_version, evidence),
        size("consume_queue_size", layout.consume_queue_size, consume_queue.DEFAULT_FILE_SIZE),
        size("batch_consume_queue_size", layout.batch_consume_queue_size, consume_queue.DEFAULT_BATCH_FILE_SIZE),
        size("consume_queue_ext_size", layout.consume_queue_ext_size, consume_queue.DEFAULT_EXT_FILE_SIZE),
        _extension(store, evidence),
        shape.slots,
        shape.places,
        evidence,
    )


def _rules(store: Store, broker_version: str | None, evidence: dict[str, str]) -> DispatchRules:
    evidence["delay_levels"] = _delay_evidence(store)
    is_configured = store.config.flag("enableMultiDispatch") is not None
    evidence["multi_dispatch"] = store.config.source if is_configured else "the records themselves"
    known = store.dispatch_rules
    if broker_version is None:
        evidence["broker_version"] = store.version.assumption
        return known
    release = parse(broker_version)
    is_exact = broker_version.startswith(str(release))
    evidence["broker_version"] = "given" if is_exact else f"given: {broker_version}, treated as {release}"
    return rules_of(release, store.config, store.metadata, known.delay_levels, known.batch_topics)


def _delay_evidence(store: Store) -> str:
    if store.config.values.get(DELAY_LEVELS_KEY):
        return store.config.source
    is_default = store.dispatch_rules.delay_levels == delays_of(None, store.version.release)
    return DEFAULT if is_default else f"the units of {SCHEDULE_TOPIC}"


def _extension(store: Store, evidence: dict[str, str]) -> bool:
    configured = store.config.flag("enableConsumeQueueExt")
    if configured is not None:
        evidence["has_extension"] = store.config.source
        return configured
    exists = (store.path / file_names.CONSUME_QUEUE_EXT).is_dir()
    evidence["has_extension"] = f"{file_names.CONSUME_QUEUE_EXT}/ {'exists' if exists else 'does not exist'}"
    return exists


def _index_shape(store: Store, evidence: dict[str, str]) -> Shape:
    """Returns maxHashSlotNum and maxIndexNum."""
    files = store.disk_index_files()
    is_configured = configured_shape(store.config) is not None
    proved = None if is_configured else next((file for file in files if file.slot_count), None)
    for name, key in (("index_slots", "maxHashSlotNum"), ("index_entries", "maxIndexNum")):
        configured = store.config.integer(key)
        if configured is not None and configured <= 0:
            raise UsageError(f"{store.config.source}: {key}: expected a positive number, found {configured}")
        seen = DEFAULT if proved is None else f"index file {proved.path.name}"
        evidence[name] = seen if configured is None else store.config.source
    return shape_of(files, store.config) or DEFAULT_SHAPE
