"""Checks the files of queues: names, lengths, contiguity, stray files, and files that belong to no queue.

Source: MappedFileQueue.load, ConsumeQueueStore.loadConsumeQueues (4.9.7, 5.5.0).
"""

from itertools import pairwise
from pathlib import Path

from mqtool.errors import FormatError
from mqtool.formats import file_names
from mqtool.formats.java import parse_int
from mqtool.store.files import MappedFile, is_directory, list_directory
from mqtool.verify.finding_collector import FindingCollector
from mqtool.verify.findings import Severity
from mqtool.verify.queues.consume_queue import QueueFacts
from mqtool.verify.stray_files import stray_file
from mqtool.verify.survey import QueueFiles, Survey


def place(queue: QueueFiles, number: int) -> tuple[Path, int | None]:
    """Returns the file that contains a unit, or would contain it, and the byte in it; the directory if no file does."""
    byte = number * queue.unit.size
    file = next((file for file in queue.files if file.base <= byte < file.end), None)
    return (queue.path, None) if file is None else (file.path, byte - file.base)


def check_queue_files(
    survey: Survey,
    queue: QueueFiles,
    facts: QueueFacts,
    size: int | None,
    collector: FindingCollector,
    *,
    is_whole: bool,
) -> None:
    """Checks names and lengths of one queue's files.

    Args:
        survey: the store.
        queue, facts: the queue, and the facts about its units.
        size: bytes of a queue file, None if unknown.
        collector: receives the findings.
        is_whole: no unit of the queue is missing.
    """
    for file in queue.files:
        if size is not None and file.size != size:
            tolerated = file == queue.files[-1] and file.size == 0 and survey.release >= (5, 5)
            collector.add(
                "queue-file-size",
                file.path,
                f"expected {size} bytes, found {file.size}",
                queue=queue.key,
                severity=Severity.WARNING if tolerated else None,
            )
    for path in queue.strays:
        _stray(survey, path, queue, size, collector)
    for before, after in pairwise(queue.files):
        if before.size and before.end < after.base:
            units = (after.base - before.end) // queue.unit.size
            evidence = f"{units} unit(s) between {before.path.name} and {after.path.name}"
            collector.add("queue-file-missing", queue.path, evidence, queue=queue.key)
    last = queue.files[-1] if len(queue.files) > 1 else None
    if last is not None and last.size and is_whole and not survey.live and _is_extra(queue, last, facts):
        collector.add("queue-file-extra", last.path, f"units end at {facts.used_end}", queue=queue.key)


def _is_extra(queue: QueueFiles, last: MappedFile, facts: QueueFacts) -> bool:
    """Whether the last file is empty although the previous one is not full."""
    return facts.used_end * queue.unit.size < last.base


def _stray(survey: Survey, path: Path, queue: QueueFiles, size: int | None, collector: FindingCollector) -> None:
    is_last = all(path.name > file.path.name for file in queue.files)
    length, evidence, severity = stray_file(path, "offset", survey.release, is_last=is_last)
    if severity is None and length is not None and length == size:
        evidence += ", as long as a queue file"
    collector.add("queue-stray-file", path, evidence, queue=queue.key, severity=severity)


def check_trees(survey: Survey, collector: FindingCollector) -> None:
    """Reports files that are in no topic or queue directory; the broker ignores them."""
    if survey.has_rocksdb:
        return
    for name in (file_names.CONSUME_QUEUE, file_names.BATCH_CONSUME_QUEUE):
        for topic in list_directory(survey.root / name):
            if not is_directory(topic):
                collector.add("queue-stray-file", topic.path, "no directory of a topic", severity=Severity.NOTE)
                continue
            for queue in list_directory(Path(topic.path)):
                if not is_directory(queue) or not _is_int(queue.name):
                    collector.add("queue-stray-file", queue.path, "no directory of a queue", severity=Severity.NOTE)


def _is_int(name: str) -> bool:
    try:
        parse_int(name)
    except FormatError:
        return False
    return True
