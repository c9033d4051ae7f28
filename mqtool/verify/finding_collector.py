"""Collects findings: makes paths relative, fills in next steps, limits the number per code."""

import glob
import shlex
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from mqtool.commands import PLAN_FILE, Opened, fill
from mqtool.store.paths import evidence_of, is_denied
from mqtool.verify.catalogue import CATALOGUE
from mqtool.verify.findings import OWNER_DENIED, Area, Finding, Severity

PERMISSION_DENIED = "permission-denied"
"""Code of anything that this user may not read, whatever it is."""
PERMISSIONS = (PERMISSION_DENIED, OWNER_DENIED)
"""With a finding of these codes nothing else can be judged or repaired."""
MAX_OF_A_CODE = 10_000
"""Maximum number of findings kept per code; further ones are only counted, which bounds the memory."""


class FindingCollector:
    """Collects the findings of one task."""

    def __init__(self, root: Path, config: Path | None = None, release: str | None = None) -> None:
        """Starts empty; the options are the values of `--config` and `--release`, if there were any."""
        self.root = root
        self._opened = Opened(root, config, release)
        self._findings: list[Finding] = []
        self._counts: Counter[str] = Counter()

    def add(
        self,
        code: str,
        path: Path | str,
        evidence: str,
        *,
        position: int | None = None,
        span: tuple[int, int] | None = None,
        queue: tuple[str, int | None] | None = None,
        group: str | None = None,
        lost_bytes: int = 0,
        lost_messages: int = 0,
        severity: Severity | None = None,
        words: tuple[str, ...] = (),
    ) -> None:
        """Adds one finding.

        The first offset of `span`, which is half-open, is the finding's `physical_offset`. `queue` is topic and queue
        id. `severity` is given if it differs from the code's default (what becomes a note has no next step), `group`
        for the next step, and the `words` of the next step if it depends on more than the catalogue knows.
        """
        check = CATALOGUE[code]
        if check.severity is Severity.UNKNOWN and is_denied(Path(path)):
            code, check, evidence = PERMISSION_DENIED, CATALOGUE[PERMISSION_DENIED], evidence_of(Path(path))
        self._counts[code] += 1
        if self._counts[code] > MAX_OF_A_CODE:
            return
        topic, queue_id = queue or (None, None)
        template = "" if severity is Severity.NOTE else check.next_step
        step = self._next_step(template, Path(path), span, (topic, queue_id, group))
        self._findings.append(
            Finding(
                code,
                severity or check.severity,
                self.relative(path),
                position,
                span[0] if span else None,
                topic,
                queue_id,
                lost_bytes,
                lost_messages,
                evidence,
                shlex.join(words) or step,
            )
        )

    def findings(self) -> list[Finding]:
        """Returns the findings, with a summary for each code that exceeded the limit."""
        more = {code: count - MAX_OF_A_CODE for code, count in self._counts.items() if count > MAX_OF_A_CODE}
        last = {finding.code: finding for finding in self._findings if finding.code in more}
        return self._findings + [
            replace(
                last[code],
                file="",
                position=None,
                physical_offset=None,
                topic=None,
                queue_id=None,
                lost_bytes=0,
                lost_messages=0,
                evidence=f"{count} more of this code",
            )
            for code, count in sorted(more.items())
        ]

    def relative(self, path: Path | str) -> str:
        """Returns a path inside the root relative to it, any other path unchanged."""
        path = Path(path)
        try:
            return path.relative_to(self.root).as_posix()
        except ValueError:
            return str(path)

    def _next_step(
        self,
        template: str,
        path: Path,
        span: tuple[int, int] | None,
        whose: tuple[str | None, int | None, str | None],
    ) -> str:
        topic, queue_id, group = whose
        name = self.relative(path)
        return fill(
            template,
            {
                "store": self._opened,
                "path": self.root / name,
                "name": name,
                "offsets": span and f"{span[0]}:{span[1]}",
                "topic": None if topic is None else glob.escape(topic),
                "group": None if group is None else glob.escape(group),
                "queue_id": None if topic is None else queue_id,
                "plan": PLAN_FILE,
            },
        )


def in_order(findings: list[Finding]) -> tuple[Finding, ...]:
    """Returns findings in the order of reports: by area, file and position."""
    areas = list(Area)
    codes = list(CATALOGUE)

    def key(finding: Finding) -> tuple[object, ...]:
        return (
            areas.index(area_of(finding)),
            finding.file,
            -1 if finding.physical_offset is None else finding.physical_offset,
            -1 if finding.position is None else finding.position,
            finding.topic or "",
            -1 if finding.queue_id is None else finding.queue_id,
            codes.index(finding.code),
            finding.evidence,
        )

    return tuple(sorted(findings, key=key))


def unread(findings: Iterable[Finding], *areas: Area) -> tuple[Finding, ...]:
    """Returns the findings about what could not be read or checked in some areas, which leaves their state unknown."""
    return tuple(
        finding
        for finding in findings
        if finding.severity is Severity.UNKNOWN and finding.code != OWNER_DENIED and area_of(finding) in areas
    )


def area_of(finding: Finding) -> Area:
    """Returns the area of a finding; findings about batch queues are assigned by their directory tree."""
    area = CATALOGUE[finding.code].area
    if finding.code in PERMISSIONS:
        tree = finding.file.partition("/")[0]
        return next((of_tree for of_tree in Area if of_tree.value == tree), area)
    batch = area is Area.CONSUME_QUEUE and finding.file.startswith(f"{Area.BATCH_CONSUME_QUEUE}/")
    return Area.BATCH_CONSUME_QUEUE if batch else area
