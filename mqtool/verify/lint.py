"""Compares the given configuration with the files on disk and checks that it is consistent.

Source: MessageStoreConfig, DefaultMessageStore.CleanCommitLogService (4.9.7, 5.5.0).
"""

from collections import Counter
from pathlib import Path

from mqtool.errors import UsageError
from mqtool.formats import file_names
from mqtool.formats.consume_queue import round_up_file_size
from mqtool.recovery.settings import DEFAULT_SIZES
from mqtool.store.config.broker_config import BrokerConfig
from mqtool.store.config.broker_keys import LEGACY_KEYS
from mqtool.store.file_sizes import BATCH_CONSUME_QUEUE, COMMIT_LOG, CONSUME_QUEUE, CONSUME_QUEUE_EXT, TIMER_LOG
from mqtool.store.index.index_file import DEFAULT_SHAPE, configured_shape, list_index_files, shape_of
from mqtool.store.named_files import real_path
from mqtool.verify.finding_collector import FindingCollector
from mqtool.verify.survey import Survey

_WARNING_LEVEL = "diskSpaceWarningLevelRatio"
_FORCIBLY = "diskSpaceCleanForciblyRatio"
_MAX_USED = "diskMaxUsedSpaceRatio"
_PARTS = (file_names.COMMIT_LOG, file_names.CONSUME_QUEUE, file_names.CONFIG)
_DEFAULTS = {_WARNING_LEVEL: 90, _FORCIBLY: 85, _MAX_USED: 75}


def check_lint(survey: Survey, config: BrokerConfig, collector: FindingCollector) -> None:
    """Checks a configuration."""
    path = Path(config.source or "configuration")
    for old, new in LEGACY_KEYS.items():
        if old in config.values:
            collector.add("lint-legacy-key", path, f"{old}={config.values[old]}; brokers read {new}")
    for unknown in config.unknown_keys():
        collector.add("lint-unknown-key", path, str(unknown))
    for wrong in config.misread():
        collector.add("lint-misread-value", path, str(wrong))
    _sizes(survey, config, path, collector)
    _ratios(config, path, collector)
    for root in config.paths("storePathRootDir")[:1]:
        empty = root.is_dir() and not any((root / name).exists() for name in _PARTS)
        if empty and survey.segments and real_path(root) != real_path(survey.root):
            collector.add("lint-path", path, f"storePathRootDir={root} holds no store; {survey.root} does")


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
        stated = config.integer(key)
        configured = DEFAULT_SIZES[key] if stated is None and config.file else stated
        if configured and key == CONSUME_QUEUE.key:
            configured = round_up_file_size(configured)
        common = misfit(configured, sizes)
        if common is not None:
            value = f"{key}={config.value(key)}" if config.value(key) else f"{key} is missing"
            evidence = f"{value}: expected files of {configured} bytes; "
            collector.add(
                "lint-size",
                path,
                f"{evidence}{sizes.count(common)} of {len(sizes)} have {common}: write {key}={common}",
            )
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
    fits = f": write maxHashSlotNum={fitting.slots} and maxIndexNum={fitting.places}" if fitting else ""
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
