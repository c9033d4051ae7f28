"""The state file of a check that can be resumed: a line about the store, then a line of JSON per finished task.

A file of another store, or of this store before it changed, is ignored. So is a truncated last line.
"""

import base64
import hashlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, structs

from mqtool import __version__
from mqtool.formats.index_file import IndexHeader
from mqtool.jobs.resume import TaskLog
from mqtool.records.damage import Tail
from mqtool.store.named_files import require_regular
from mqtool.store.queues.consume_queue_ext import ExtUnits
from mqtool.verify.findings import Finding, Severity
from mqtool.verify.index.index_file import IndexFacts, WrongEntry
from mqtool.verify.log.checksums import Sums
from mqtool.verify.log.continuity import Jump, QueueSpan
from mqtool.verify.log.segment import DamagedRange, SegmentFacts
from mqtool.verify.queues.consume_queue import QueueFacts, Run
from mqtool.verify.survey import Survey
from mqtool.verify.tasks import Result, SparseSums
from mqtool.verify.timeline import Timeline

_CLASSES: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        Result,
        SparseSums,
        SegmentFacts,
        QueueFacts,
        IndexFacts,
        DamagedRange,
        QueueSpan,
        Jump,
        Run,
        WrongEntry,
        Finding,
        Tail,
        Timeline,
        IndexHeader,
    )
}


def state_file(path: Path, survey: Survey) -> TaskLog[Result]:
    """Opens or creates the state file for a store; ignores results of another store, or of this one before it changed.

    Raises:
        UsageError: it is another kind of file.
        OSError: it cannot be read or written.
    """
    require_regular(path)
    return TaskLog(path, {"mqtool": __version__, "store": _digest(survey)}, "verify", decode)


def _digest(survey: Survey) -> str:
    """Returns a digest that changes whenever the store or the request changes."""
    files = [s.path for s in survey.segments] + [f.path for q in survey.queues for f in q.files]
    files += [path for path, _ in survey.index.files]
    files += [f.path for q in survey.queues for f in ExtUnits(survey.root, q.topic, q.queue_id).files]
    marks = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    request = (str(survey.root), survey.topics, survey.timeline, str(survey.config), survey.broker)
    known = (survey.end, survey.live, survey.has_dledger, repr(survey.rules), survey.index.shape)
    return hashlib.sha256(repr((request, known, marks)).encode()).hexdigest()


def encode(value: Any) -> Any:
    """Returns JSON for facts: value classes by name, arrays as bytes."""
    if isinstance(value, np.ndarray):
        return {"$array": value.dtype.str, "data": base64.b64encode(value.tobytes()).decode()}
    if isinstance(value, Sums):
        return {"$sums": [encode(value.total), encode(value.count)]}
    if isinstance(value, Struct):
        values = {name: encode(field) for name, field in structs.asdict(value).items()}
        return {"$class": type(value).__name__, **values}
    if isinstance(value, Counter):
        return {"$counter": [[encode(key), count] for key, count in value.items()]}
    if isinstance(value, Severity):
        return {"$severity": value.value}
    if isinstance(value, Path):
        return {"$path": str(value)}
    if isinstance(value, tuple):
        return {"$tuple": [encode(item) for item in value]}
    if isinstance(value, list):
        return [encode(item) for item in value]
    return value


def decode(value: Any) -> Any:
    """Returns the facts that `encode` wrote."""
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "$class" in value:
        kind = _CLASSES[value["$class"]]
        return kind(**{name: decode(item) for name, item in value.items() if name != "$class"})
    if "$array" in value:
        return np.frombuffer(base64.b64decode(value["data"]), np.dtype(value["$array"])).copy()
    if "$sums" in value:
        sums = Sums(0)
        sums.total, sums.count = (decode(item) for item in value["$sums"])
        return sums
    if "$counter" in value:
        return Counter({decode(key): count for key, count in value["$counter"]})
    if "$severity" in value:
        return Severity(value["$severity"])
    return Path(value["$path"]) if "$path" in value else tuple(decode(item) for item in value["$tuple"])
