"""Checks the files of controller mode.

Source: EpochFileCache, CheckpointFile (5.5.0).
"""

from itertools import pairwise
from pathlib import Path

from mqtool.errors import FormatError, StoreError, UnreadableError
from mqtool.formats import epoch, file_names
from mqtool.formats.epoch import EpochEntry
from mqtool.store.config.broker_config import BrokerConfig
from mqtool.store.config.configured_place import broker_identity, epoch_file
from mqtool.store.files import read_file
from mqtool.verify.finding_collector import FindingCollector
from mqtool.verify.findings import Severity
from mqtool.verify.survey import Survey


def check_controller(survey: Survey, config: BrokerConfig, collector: FindingCollector) -> str | None:
    """Checks the epoch file; returns a text that states what was checked, None if the store needs no epoch file.

    Args:
        survey: the store.
        config: states where the files are, and enableControllerMode. If that is not configured, the existence of
            brokerIdentity decides, which a broker writes when a controller has registered it.
        collector: receives the findings.
    """
    enabled = config.flag("enableControllerMode")
    path = epoch_file(survey.root, config)
    backup = path.with_name(path.name + file_names.BACKUP_SUFFIX)
    if not path.exists() and not backup.exists():
        identity = broker_identity(survey.root, config)
        reason = "enableControllerMode=true" if enabled else f"{identity.name} is there" if identity.is_file() else ""
        if not reason or enabled is False or survey.end <= survey.min_offset:
            return None
        collector.add("epoch-missing", path, f"neither it nor its .bak; {reason}, the log ends at {survey.end}")
        return "0 epochs"
    entries, problem = _read(path)
    if problem is not None:
        _, of_backup = _read(backup)
        evidence = f"{problem}; {backup.name}: {of_backup or 'can be read'}"
        severity = Severity.UNKNOWN if isinstance(problem, UnreadableError) else None if of_backup else Severity.WARNING
        collector.add("epoch-unreadable", path, evidence, severity=severity)
        return "0 epochs"
    for before, after in pairwise(entries):
        if after.epoch <= before.epoch or after.start_offset < before.start_offset:
            evidence = f"epoch {after.epoch} from {after.start_offset} follows"
            collector.add("epoch-order", path, f"{evidence} epoch {before.epoch} from {before.start_offset}")
    last = entries[-1] if entries else None
    if last is not None and last.start_offset > survey.end and not survey.live and survey.segments:
        collector.add(
            "epoch-order", path, f"epoch {last.epoch} starts at {last.start_offset}, the log ends at {survey.end}"
        )
    return f"{len(entries)} epoch(s)"


def _read(path: Path) -> tuple[tuple[EpochEntry, ...], FormatError | StoreError | None]:
    try:
        return epoch.parse(read_file(path)), None
    except (FormatError, StoreError) as error:
        return (), error
