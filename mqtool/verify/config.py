"""Checks config/ (can the files be read, do they agree with the queues?) and the given configuration against the files.

Source: ConfigManager.load, TopicConfigManager, ConsumerOffsetManager, ConsumeQueueStore.queueTypeShouldBe,
MessageStoreConfig, DefaultMessageStore.CleanCommitLogService (4.9.7, 5.5.0).
"""

import bisect
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from mqtool.errors import FormatError, StoreError, UnreadableError, UsageError
from mqtool.formats import config_files, config_json, file_names, topics
from mqtool.formats.config_files import BATCH_QUEUES, TopicConfig
from mqtool.formats.consume_queue import round_up_file_size
from mqtool.formats.release import Release
from mqtool.formats.topics import TopicQueue, is_made_by_broker
from mqtool.recovery.configuration import read_table, table_fits
from mqtool.recovery.settings import with_defaults
from mqtool.store.config.broker_config import BrokerConfig
from mqtool.store.config.broker_keys import KEYS, LEGACY_KEYS
from mqtool.store.config.metadata import OFFSET_FILES, Metadata, offset_file, unread_database
from mqtool.store.file_sizes import BATCH_CONSUME_QUEUE, COMMIT_LOG, CONSUME_QUEUE, CONSUME_QUEUE_EXT, TIMER_LOG
from mqtool.store.files import list_directory, read_file
from mqtool.store.index_file import DEFAULT_SHAPE, configured_shape, list_index_files, query_message, shape_of
from mqtool.store.paths import kind_of, real_path
from mqtool.store.queues.consume_queue import has_record, units_from
from mqtool.store.store import Store
from mqtool.store.waiting.held_back import delivered_offsets, event_of, identity_of
from mqtool.verify.consume_queue import QueueFacts
from mqtool.verify.finding_collector import FindingCollector
from mqtool.verify.findings import NO_CONFIG, Severity
from mqtool.verify.survey import Survey

_PARSERS: dict[str, Callable[[bytes], object]] = {
    file_names.TOPICS: config_files.parse_topics,
    file_names.SUBSCRIPTION_GROUPS: config_files.parse_groups,
    file_names.CONSUMER_OFFSETS: config_files.parse_consumer_offsets,
    file_names.LMQ_CONSUMER_OFFSETS: config_files.parse_consumer_offsets,
    file_names.DELAY_OFFSETS: config_files.parse_delay_offsets,
    file_names.CONSUMER_FILTERS: config_json.parse,
    file_names.CONSUMER_ORDER_INFO: config_json.parse,
    file_names.TOPIC_QUEUE_MAPPING: config_json.parse,
    file_names.MESSAGE_REQUEST_MODE: config_json.parse,
    file_names.TIMER_METRICS: config_json.parse,
    file_names.TRANSACTION_METRICS: config_json.parse,
}
_BROKERS_OWN = (
    file_names.SUBSCRIPTION_GROUPS,
    file_names.CONSUMER_OFFSETS,
    file_names.LMQ_CONSUMER_OFFSETS,
    file_names.CONSUMER_FILTERS,
    file_names.TOPICS,
)
"""Files that only a broker writes; a store used without a broker has none of them."""
_ALWAYS = (file_names.TOPICS,)
"""Files that a broker has once it has accepted a message."""
_ROCKSDB = {file_names.TOPICS: "topics", file_names.CONSUMER_OFFSETS: "consumerOffsets"}
"""File to the directory that replaces it if the broker keeps its configuration in RocksDB."""
_DELIVERY_MS = 5_000
"""A message that was due this many ms before the newest record must have been delivered."""

_WARNING_LEVEL = "diskSpaceWarningLevelRatio"
_FORCIBLY = "diskSpaceCleanForciblyRatio"
_MAX_USED = "diskMaxUsedSpaceRatio"
_PARTS = (file_names.COMMIT_LOG, file_names.CONSUME_QUEUE, file_names.CONFIG)
_DEFAULTS = {_WARNING_LEVEL: 90, _FORCIBLY: 85, _MAX_USED: 75}


def check_config_files(survey: Survey, config: BrokerConfig, collector: FindingCollector) -> tuple[str, frozenset[str]]:
    """Checks every file.

    Returns why the check could not run, "" if it could; and the names of files that the operating system refuses to
    read.
    """
    directory = survey.root / file_names.CONFIG
    if directory.exists() and not directory.is_dir():
        evidence = f"expected a directory, found a {kind_of(directory.stat().st_mode)}"
        collector.add("config-not-read", directory, evidence)
        return f"{directory}: {evidence}", frozenset()
    if not directory.is_dir():
        if any(queue.is_batch for queue in survey.queues):
            evidence = f"{file_names.CONFIG}/ is missing, and only topics.json states which topics have batch queues"
            collector.add("config-missing", directory / file_names.TOPICS, evidence)
        return NO_CONFIG, frozenset()
    names = {entry.name for entry in list_directory(directory)}
    release = survey.release if survey.version.line is not None else None
    positions = offset_file(directory, config)
    unread = frozenset(
        name
        for name in _PARSERS
        if not _file(directory, name, names, release, collector, positions if name in OFFSET_FILES else name)
    )
    has_messages = bool(survey.segments or survey.queues)
    for needed in _ALWAYS if has_messages and not unread_database(directory, config) else ():
        if needed in names or needed + file_names.BACKUP_SUFFIX in names or _ROCKSDB.get(needed) in names:
            continue
        others = sorted(names.intersection(_BROKERS_OWN))
        if others:
            evidence = f"neither it nor its .bak exists, but {', '.join(others)} does"
            collector.add("config-missing", directory / needed, evidence)
    return "", unread


def _file(
    directory: Path, name: str, names: set[str], release: Release | None, collector: FindingCollector, read: str
) -> bool:
    """Checks a file, in place of which a broker may read another; returns False if the system refused to read it."""
    backup = name + file_names.BACKUP_SUFFIX
    if name not in names and backup not in names:
        return True
    at = name
    try:
        problem = _problem(directory / name, name, release) if name in names else "no such file"
        if not problem:
            return True
        at = backup
        of_backup = _problem(directory / backup, name, release) if backup in names else "no such file"
    except UnreadableError as error:
        collector.add("config-not-read", directory / at, error.reason)
        return False
    code = "config-missing" if name not in names else "config-unreadable"
    evidence = f"{problem}; {backup}: {of_backup or 'can be read'}"
    severity = None if of_backup else Severity.WARNING
    if read != name:
        severity = Severity.NOTE
        evidence += f"; a broker reads {file_names.CONFIG}/{read} instead, as enableLmq or the files show"
    collector.add(code, directory / name, evidence, severity=severity)
    return True


def _problem(path: Path, name: str, release: Release | None) -> str:
    """Returns why a file, or its backup, cannot be read; "" if it can.

    The parser of the release decides about the values in it, if that is known.
    """
    try:
        data = read_file(path)
        _PARSERS[name](data)
    except UnreadableError:
        raise
    except (FormatError, StoreError) as error:
        return str(error).removeprefix(f"{path}: ")
    try:
        is_taken = release is None or table_fits(name, read_table(data, release=release), release=release)
    except (ValueError, RecursionError):  # it is unknown whether the broker's parser takes it
        return ""
    return "" if is_taken else f"{release} rejects a key or value in it, for example a number out of range"


def check_topics(
    survey: Survey, topics: Mapping[str, TopicConfig], readable: bool, collector: FindingCollector
) -> None:
    """Compares the topics with the queues on disk; `readable` is whether topics.json or its .bak was read."""
    path = survey.root / file_names.CONFIG / file_names.TOPICS
    seen: set[str] = set()
    for queue in survey.queues:
        topic = queue.topic
        if not survey.includes(topic) or topic in seen or not queue.files:
            continue
        seen.add(topic)
        config = topics.get(topic)
        if config is None:
            if readable and not is_made_by_broker(topic):
                evidence = f"{queue.path.parent} contains its queues"
                collector.add("config-topic-missing", path, evidence, queue=(topic, None))
        elif config.attributes is not None and (config.queue_type == BATCH_QUEUES) != queue.is_batch:
            evidence = f"the configuration states {config.queue_type}, but the queues are in {queue.path.parent}"
            collector.add("config-queue-type", path, evidence, queue=(topic, None))


def check_offsets(
    survey: Survey, metadata: Metadata, queues: Mapping[TopicQueue, QueueFacts], collector: FindingCollector
) -> None:
    """Compares consumer offsets with the queues."""
    tables = metadata.offset_tables
    path = survey.root / tables.written if tables.read is None else tables.read.path
    for group, by_topic in sorted(metadata.consumer_offsets.items()):
        for topic, offsets in sorted(by_topic.items()):
            for queue_id, offset in sorted(offsets.items()) if survey.includes(topic) else ():
                _offset(survey, path, group, (topic, queue_id), offset, queues, collector)


def rocksdb_facts(store: Store) -> dict[TopicQueue, QueueFacts]:
    """Returns the bounds of the queues that a store keeps in RocksDB."""
    queues = store.rocksdb.queues if store.rocksdb is not None else {}
    return {
        name: QueueFacts(
            *name, is_batch=False, used_end=queue.max_offset, min_offset=queue.min_offset, max_offset=queue.max_offset
        )
        for name, queue in queues.items()
    }


def _offset(
    survey: Survey,
    path: Path,
    group: str,
    queue: TopicQueue,
    offset: int,
    queues: Mapping[TopicQueue, QueueFacts],
    collector: FindingCollector,
) -> None:
    facts = queues.get(queue)
    if offset < 0:
        collector.add("config-offset-negative", path, f"group {group}: offset {offset}", queue=queue, group=group)
    elif facts is None and survey.is_unlisted(queue):
        pass
    elif facts is None:
        if offset > 0:
            evidence = f"group {group}: offset {offset}, but the queue has no files"
            collector.add("config-offset-orphan", path, evidence, queue=queue, group=group)
    elif offset > facts.end and not survey.live and not facts.failure:
        evidence = f"group {group}: offset {offset}, but the queue ends at {facts.end}"
        collector.add("config-offset-ahead", path, evidence, queue=queue, group=group)


def check_delay_offsets(
    survey: Survey, store: Store, queues: Mapping[TopicQueue, QueueFacts], collector: FindingCollector
) -> None:
    """Compares the offsets of delay levels with the queues of SCHEDULE_TOPIC_XXXX, in both directions.

    Source: ScheduleMessageService.load, correctDelayOffset, start (4.9.7, 5.5.0).
    """
    if survey.live or not survey.includes(topics.SCHEDULE_TOPIC):
        return
    usual = survey.root / file_names.CONFIG / file_names.DELAY_OFFSETS
    path = store.metadata.sources.get(file_names.DELAY_OFFSETS, usual)
    for level, offset in sorted(store.metadata.delay_offsets.items()):
        queue = (topics.SCHEDULE_TOPIC, level - 1)
        facts = queues.get(queue)
        if facts is None:
            if offset > 0 and not survey.is_unlisted(queue):
                collector.add("config-delay-orphan", path, f"level {level}: offset {offset}", queue=queue)
        elif not facts.failure:
            _delay_offset(path, level, offset, facts, collector)
            if store.clean_stop and max(0, facts.min_offset or 0) <= offset < facts.end:
                _delivered_again(path, store, level, offset, collector)
    if store.clean_stop and store.metadata.topics_file is not None and store.checkpoint is not None:
        now = store.checkpoint.physic_msg_timestamp - _DELIVERY_MS
        _missing_delay_offsets(path, store, queues, now, collector)


def _missing_delay_offsets(
    path: Path, store: Store, queues: Mapping[TopicQueue, QueueFacts], now: int, collector: FindingCollector
) -> None:
    """Reports levels without an offset of which a message was due before a time, in a store that was stopped cleanly.

    A broker has an offset for a level once it has delivered a message of it, and writes the offsets every ten
    seconds and when it stops. If other levels have offsets, the broker may not have been running when the message was
    due, and something else may have written the newest record (`append`), so this is not a finding.
    """
    table = store.metadata.delay_offsets
    default = 0 if any(offset >= 0 for offset in table.values()) else -1
    for (topic, queue_id), facts in sorted(queues.items()):
        is_missing = topic == topics.SCHEDULE_TOPIC and table.get(queue_id + 1, default) < 0
        count = _due_before(store, queue_id, now) if is_missing and not facts.failure else 0
        if count:
            evidence = (
                f"level {queue_id + 1}: {count} message(s) were due while the broker ran, but there is no position"
            )
            collector.add("config-delay-missing", path, evidence, queue=(topic, queue_id))


def _due_before(store: Store, queue_id: int, time: int) -> int:
    """Returns how many messages of a delay level were due before a time; a unit's tags code is its deliver time."""
    queue = store.queue(topics.SCHEDULE_TOPIC, queue_id)
    if queue is None or queue.is_batch:
        return 0
    due = 0
    for number, file in enumerate(queue.files):
        first = max(0, queue.min_offset - file.base // queue.unit_size)
        units = queue.units_of(number)[first:]
        due += int((has_record(units) & (units["tags_code"] > 0) & (units["tags_code"] < time)).sum())
    return due


def _delivered_again(path: Path, store: Store, level: int, offset: int, collector: FindingCollector) -> None:
    """Reports messages of a level, from its position on, whose delivery the log proves.

    A level is delivered in order, so the last delivered message is found by bisection. After a crash the position may
    be ten seconds old, which is how brokers work and no finding.
    """
    queue = store.queue(topics.SCHEDULE_TOPIC, level - 1)
    if queue is None or queue.is_batch:
        return
    offsets, physical = units_from(queue, offset)
    delivered = bisect.bisect_left(physical, True, key=lambda at: not _is_delivered(store, int(at)))
    if delivered:
        evidence = f"level {level}: offset {offset}, but messages up to {offsets[delivered - 1]} have been delivered"
        collector.add("config-delay-behind", path, evidence, queue=(topics.SCHEDULE_TOPIC, level - 1))


def _is_delivered(store: Store, physical_offset: int) -> bool:
    """Whether index and log prove that a delayed message is delivered."""
    try:
        message = store.message_at(physical_offset)
    except StoreError:
        return False
    identity = identity_of(message)
    if identity is None:
        return False
    log = store.commit_log
    try:
        index = store.index_files()
        records = query_message(log, index, topics.SCHEDULE_TOPIC, identity.unique_key)
        records += query_message(log, index, identity.topic, identity.unique_key)
    except UnreadableError:  # a finding of the index
        return False
    return physical_offset in delivered_offsets(map(event_of, sorted(records, key=lambda item: item.physical_offset)))


def _delay_offset(path: Path, level: int, offset: int, facts: QueueFacts, collector: FindingCollector) -> None:
    """Compares the offset of one level with its queue."""
    queue = (facts.topic, facts.queue_id)
    if offset > facts.end:
        evidence = f"level {level}: offset {offset}, but the queue ends at {facts.end}"
        collector.add("config-delay-ahead", path, evidence, queue=queue)
    elif facts.min_offset is not None and 0 <= offset < facts.min_offset:
        evidence = f"level {level}: offset {offset}, but the queue begins at {facts.min_offset}"
        collector.add("config-delay-expired", path, f"{evidence}: {facts.min_offset - offset} message(s)", queue=queue)


def check_lint(survey: Survey, config: BrokerConfig, collector: FindingCollector) -> None:
    """Checks a configuration."""
    path = Path(config.source or "configuration")
    for old, new in LEGACY_KEYS.items():
        if old in config.values:
            collector.add("lint-legacy-key", path, f"{old}={config.values[old]} has no effect; brokers read {new}")
    for unread in config.unread_keys(survey.releases):
        severity = Severity.NOTE if unread.key in KEYS else None
        collector.add("lint-unknown-key", path, unread.words, severity=severity)
    for wrong in config.misread():
        collector.add("lint-misread-value", path, str(wrong))
    _sizes(survey, config, path, collector)
    _ratios(config, path, collector)
    for root in config.paths("storePathRootDir")[:1]:
        empty = root.is_dir() and not any((root / name).exists() for name in _PARTS)
        if empty and survey.segments and real_path(root) != real_path(survey.root):
            collector.add("lint-path", path, f"storePathRootDir={root} contains no store; {survey.root} does")


def misfit(configured: int | None, sizes: list[int]) -> int | None:
    """Returns the common size of the files if none of them has the configured size, otherwise None."""
    if not configured or len(sizes) < 2 or configured in sizes:
        return None
    return Counter(sizes).most_common(1)[0][0]


def _sizes(survey: Survey, config: BrokerConfig, path: Path, collector: FindingCollector) -> None:
    sizes_of = {
        COMMIT_LOG.key: [segment.size for segment in survey.segments],
        CONSUME_QUEUE.key: [file.size for queue in survey.queues if not queue.is_batch for file in queue.files],
        BATCH_CONSUME_QUEUE.key: [file.size for queue in survey.queues if queue.is_batch for file in queue.files],
        CONSUME_QUEUE_EXT.key: _sizes_in(survey.root / file_names.CONSUME_QUEUE_EXT, "*/*/*"),
        TIMER_LOG.key: _sizes_in(survey.root / file_names.TIMER_LOG, "*"),
    }
    for key, sizes in sizes_of.items():
        configured = with_defaults(config).integer(key)
        if configured and key == CONSUME_QUEUE.key:
            configured = round_up_file_size(configured)
        common = misfit(configured, sizes)
        if common is not None:
            sizes_words = f"{sizes.count(common)} of {len(sizes)} have {common}"
            expected = f"{config.stated(key)}: expected files of {configured} bytes"
            collector.add("lint-size", path, f"{expected}; {sizes_words}: set {key}={common}")
    _index_shape(survey, config, path, collector)


def _sizes_in(directory: Path, pattern: str) -> list[int]:
    return [file.stat().st_size for file in directory.glob(pattern) if file.name.isdigit() and file.is_file()]


def _index_shape(survey: Survey, config: BrokerConfig, path: Path, collector: FindingCollector) -> None:
    """Compares maxHashSlotNum and maxIndexNum with what the entries of the index files prove."""
    configured = DEFAULT_SHAPE if config.file else None
    shape, sizes = configured_shape(config) or configured, [size for _, size in survey.index.files]
    if shape is None or shape.file_size in sizes or not sizes:
        return
    files = list_index_files(survey.root / file_names.INDEX)[0]
    fitting = shape_of(files, BrokerConfig(), may_be_damaged=True)
    evidence = f"maxHashSlotNum={shape.slots}, maxIndexNum={shape.places}: expected files of {shape.file_size} bytes; "
    fits = f": set maxHashSlotNum={fitting.slots} and maxIndexNum={fitting.places}" if fitting else ""
    collector.add("lint-size", path, f"{evidence}none of {len(sizes)} has that size{fits}")


def _ratios(config: BrokerConfig, path: Path, collector: FindingCollector) -> None:
    """Checks that deletion starts before it is forced, and is forced before writes stop.

    Only ratios that are configured explicitly are checked.
    """
    given = {key for key in _DEFAULTS if key in config.values}
    if not given:
        return
    try:
        values = {key: config.integer(key) or default for key, default in _DEFAULTS.items()}
    except UsageError as error:
        collector.add("lint-disk-ratio", path, str(error))
        return
    if {_WARNING_LEVEL, _FORCIBLY} & given and values[_FORCIBLY] > values[_WARNING_LEVEL]:
        evidence = f"{_FORCIBLY} {values[_FORCIBLY]} > {_WARNING_LEVEL} {values[_WARNING_LEVEL]}"
        collector.add("lint-disk-ratio", path, evidence)
    if {_MAX_USED, _FORCIBLY} <= given and values[_MAX_USED] > values[_FORCIBLY]:
        collector.add("lint-disk-ratio", path, f"{_MAX_USED} {values[_MAX_USED]} > {_FORCIBLY} {values[_FORCIBLY]}")
