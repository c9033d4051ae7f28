"""The state file of a check that goes on later: a line of JSON per finished task, behind a line about the store.

A file of another store, or of this one before it changed, is not taken up. A last line that was cut off is
left out.
"""

import base64
import dataclasses
import hashlib
import json
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from mqtool import __version__
from mqtool.errors import UsageError
from mqtool.formats.index_file import IndexHeader
from mqtool.scan.damage import Tail
from mqtool.verify.consume_queue import QueueFacts, Run
from mqtool.verify.continuity import Jump, QueueSpan
from mqtool.verify.findings import Finding, Severity
from mqtool.verify.fingerprints import Sums
from mqtool.verify.index_file import IndexFacts, OddEntry
from mqtool.verify.segment import DamagedRange, SegmentFacts
from mqtool.verify.survey import Survey
from mqtool.verify.tasks import Result, SparseSums, Task
from mqtool.verify.timeline import Timeline

_CLASSES: dict[str, Any] = {
    kind.__name__: kind
    for kind in (Result, SparseSums, SegmentFacts, QueueFacts, IndexFacts, DamagedRange, QueueSpan, Jump, Run, OddEntry,
                 Finding, Tail, Timeline, IndexHeader)
}  # fmt: skip


class StateFile:
    """Reads what an earlier run finished, then takes the results of this one.

    Attributes:
        done: results by task key.
    """

    def __init__(self, path: Path, survey: Survey) -> None:
        """Opens or makes the file.

        Raises:
            UsageError: it is another kind of file.
        """
        self.done: dict[str, Result] = {}
        head = {"mqtool": __version__, "store": _digest(survey)}
        lines = path.read_text("utf-8").splitlines(keepends=True) if path.exists() else []
        if lines and self._head_of(lines[0], path) == head:
            whole = [line for line in lines if line.endswith("\n")]
            for line in whole[1:]:
                key, result = json.loads(line)
                self.done[key] = decode(result)
            path.write_text("".join(whole), "utf-8")
        else:
            path.write_text(json.dumps(head) + "\n", "utf-8")
        self._file = path.open("a", encoding="utf-8")

    @staticmethod
    def _head_of(line: str, path: Path) -> object:
        try:
            found = json.loads(line)
        except ValueError:
            found = None
        if not isinstance(found, dict) or "mqtool" not in found:
            raise UsageError(f"{path}: is no state file of verify; name a file that does not exist yet")
        return found

    def add(self, task: Task, result: Result) -> None:
        """Writes one result down."""
        self._file.write(json.dumps([task.key, encode(result)]) + "\n")
        self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()


def _digest(survey: Survey) -> str:
    """Returns what changes whenever the store, or what is asked of it, does."""
    files = [s.path for s in survey.segments] + [f.path for q in survey.queues for f in q.files]
    files += [path for path, _ in survey.index.files]
    marks = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    asked = (str(survey.root), survey.end, survey.topics, survey.timeline, repr(survey.rules), survey.index.shape)
    return hashlib.sha256(repr((asked, marks)).encode()).hexdigest()


def encode(value: Any) -> Any:
    """Returns JSON for facts: dataclasses by name, arrays as bytes."""
    if isinstance(value, np.ndarray):
        return {"$array": value.dtype.str, "data": base64.b64encode(value.tobytes()).decode()}
    if isinstance(value, Sums):
        return {"$sums": [encode(value.total), encode(value.count)]}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        values = {f.name: encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
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
