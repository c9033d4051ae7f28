"""What `mqtool replay` does once its options are read."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mqtool.cli.exits import ExitCode
from mqtool.cli.filters import Filters
from mqtool.cli.invocation import Format, Invocation, note
from mqtool.cli.output import Output
from mqtool.cli.replay_schema import REPLAY
from mqtool.engine.options import Compat
from mqtool.errors import UnsupportedFormatError, UsageError
from mqtool.kinds.registry import recognise
from mqtool.replay.originals import Source
from mqtool.replay.run import Report, Request, replay
from mqtool.store import open_store
from mqtool.store.selection import Selection


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the options said; see `replay`."""

    source: Path
    to: Path
    ids: Path | None
    state: Path | None
    rate: float | None
    keep_times: bool
    sync: bool
    compat: str | None
    dry_run: bool
    filters: Filters
    config: Path | None

    def request(self) -> Request:
        """Returns the library's request.

        Raises:
            UsageError: an option makes no sense.
            UnsupportedFormatError: the source is a store of another system.
        """
        kind = recognise(self.source)
        if kind is not None:
            raise UnsupportedFormatError(f"{self.source}: a store of kind {kind.name}; replay takes RocketMQ's")
        return Request(
            Source(self.source, self._selection(), self.keep_times), self.to, self.ids, self.state, self.rate,
            self.sync, self.config, None if self.compat is None else Compat(self.compat), self.dry_run,
        )  # fmt: skip

    def _selection(self) -> Selection:
        first, end = 0, (1 << 63) - 1
        if self.filters.offset is not None:
            if not Source(self.source, Selection()).is_store:
                raise UsageError("--offset means the log of a store; choose by --time or --limit")
            with open_store(self.source) as store:
                first, end = store.commit_log.min_offset, store.commit_log.max_offset
        return Selection.of(**self.filters.keywords(first, end), limit=self.filters.limit)


def run(invocation: Invocation, wanted: Wanted, output_format: Format) -> ExitCode:
    """Replays and reports."""
    request = wanted.request()
    output = Output(invocation, REPLAY, output_format)
    found = replay(request)
    for position, reason in found.reasons[:3]:
        note(f"refused at {position}: {reason}")
    for damage in found.passed.damage[:3]:
        note(str(damage))
    code = ExitCode.NO if found.refused or found.passed.damage else ExitCode.OK
    return output.document(_document(request, found), code)


def _document(request: Request, found: Report) -> dict[str, Any]:
    passed = found.passed
    return {
        "source": str(request.source.path), "target": str(request.target), "dry_run": request.dry_run,
        "replayed": found.replayed, "found_there": found.found_there, "refused": found.refused,
        "not_selected": passed.not_selected, "not_committed": passed.not_committed, "damage": len(passed.damage),
        "damaged_bytes": sum(one.end - one.start for one in passed.damage),
        "topics": [{"topic": topic, "messages": count} for topic, count in sorted(found.topics.items())],
        "reasons": [{"position": position, "reason": reason} for position, reason in found.reasons],
    }  # fmt: skip
