"""What `mqtool replay` does once its options are read."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mqtool.cli.exits import ExitCode
from mqtool.cli.filters import Filters
from mqtool.cli.invocation import Format, Invocation, note
from mqtool.cli.output import Output
from mqtool.cli.replay_schema import REPLAY
from mqtool.cli.selected import require_selected
from mqtool.engine.options import Compat
from mqtool.errors import UnsupportedFormatError, UsageError
from mqtool.ingest.duplicates import Duplicates
from mqtool.replay.originals import Source
from mqtool.replay.run import Report, Request, replay
from mqtool.replay.to_broker import SendRequest, replay_to
from mqtool.siblings.registry import recognise
from mqtool.store import open_store
from mqtool.store.selection import Selection

_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^/\[\]:]+):[0-9]+")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the options said; see `replay`."""

    source: Path
    to: str
    ids: Path | None
    state: Path | None
    rate: float | None
    keep_times: bool
    flush: str | None
    compat: str | None
    dry_run: bool
    filters: Filters
    config: Path | None
    duplicates: str = Duplicates.REFUSE

    @property
    def is_address(self) -> bool:
        """Whether the target is a name server; what is there as a directory, or has a slash, is a store."""
        return _ADDRESS.fullmatch(self.to) is not None and not Path(self.to).exists()

    def to_store(self) -> Request:
        """Returns the library's request for a store that takes the messages; raises as `_source`."""
        return Request(
            self._source(),
            Path(self.to),
            self.ids,
            self.state,
            self.rate,
            self.flush == "sync",
            self.config,
            None if self.compat is None else Compat(self.compat),
            self.dry_run,
            self.duplicates,
        )

    def to_broker(self) -> SendRequest:
        """Returns the library's request for brokers that take the messages.

        Raises:
            UsageError: an option makes no sense, or is about a store's files.
        """
        for name, given in (("--flush", self.flush), ("--broker", self.compat), ("--config", self.config)):
            if given:
                raise UsageError(f"{name} is about the files of a --to store; {self.to} is a name server")
        return SendRequest(self._source(), self.to, self.ids, self.state, self.rate, self.dry_run)

    def _source(self) -> Source:
        """Returns where messages come from.

        Raises:
            UsageError: an option makes no sense.
            UnsupportedFormatError: the source is a store of another system.
        """
        kind = recognise(self.source)
        if kind is not None:
            raise UnsupportedFormatError(f"{self.source}: a store of kind {kind.name}; replay takes RocketMQ's")
        return Source(self.source, self._selection(), self.keep_times)

    def _selection(self) -> Selection:
        first, end = 0, (1 << 63) - 1
        if (self.filters.topic or self.filters.queue is not None) and Source(self.source, Selection()).is_store:
            with open_store(self.source) as store:
                require_selected([store], self.filters.topic, self.filters.queue)
        if self.filters.offset is not None:
            if not Source(self.source, Selection()).is_store:
                raise UsageError("--offset means the log of a store; choose by --time or --limit")
            with open_store(self.source) as store:
                first, end = store.commit_log.min_offset, store.commit_log.max_offset
        return Selection.of(**self.filters.keywords(first, end), limit=self.filters.limit)


def run(invocation: Invocation, wanted: Wanted, output_format: Format) -> ExitCode:
    """Replays and reports."""
    output = Output(invocation, REPLAY, output_format)
    found = _sent(wanted.to_broker()) if wanted.is_address else replay(wanted.to_store())
    for position, reason in found.reasons[:3]:
        note(f"refused at {position}: {reason}")
    for damage in found.passed.damage[:3]:
        note(str(damage))
    code = ExitCode.NO if found.refused or found.passed.damage else ExitCode.OK
    return output.document(_document(wanted, found), code)


def _sent(request: SendRequest) -> Report:
    from mqtool.server.producer.sender import BrokerSender  # noqa: PLC0415 - a store needs no event loop

    with BrokerSender(request.name_server) as sender:
        return replay_to(request, sender)


def _document(wanted: Wanted, found: Report) -> dict[str, Any]:
    passed = found.passed
    return {
        "source": str(wanted.source),
        "target": wanted.to,
        "dry_run": wanted.dry_run,
        "replayed": found.replayed,
        "found_there": found.found_there,
        "refused": found.refused,
        "not_selected": passed.not_selected,
        "not_committed": passed.not_committed,
        "damage": len(passed.damage),
        "damaged_bytes": sum(one.end - one.start for one in passed.damage),
        "topics": [{"topic": topic, "messages": count} for topic, count in sorted(found.topics.items())],
        "reasons": [{"position": position, "reason": reason} for position, reason in found.reasons],
    }
