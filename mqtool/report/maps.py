"""The map of the log: its segments, and where the damage is. Positions and sizes, no markup."""

from collections.abc import Sequence

from msgspec import Struct

from mqtool import words
from mqtool.store.files import MappedFile
from mqtool.verify.findings import LostRange
from mqtool.verify.log.segment import SegmentFacts

MAX_CELLS = 480
"""Cells of the segment map; more segments than these share cells."""
COLUMNS = 24
WIDTH = 1000
"""Width of the damage map, in SVG user units."""
_NARROWEST = 4.0
_RANK = ("missing", "unreadable", "damaged", "valid", "empty")


class Cell(Struct, frozen=True):
    """One segment, or several adjacent ones."""

    state: str  # the worst of their states: missing, unreadable, damaged, valid, empty (preallocated)
    filled: float  # fraction that contains records or a BLANK, 0 to 1
    title: str  # description
    column: int  # and row: position in the map
    row: int


class Mark(Struct, frozen=True):
    """One damaged range in the damage map: position, width and description."""

    left: float
    width: float
    title: str


def segment_map(
    segments: Sequence[MappedFile], facts: Sequence[SegmentFacts], ranges: Sequence[LostRange]
) -> list[Cell]:
    """Returns the cells of all segments and of the gaps between them, in log order."""
    parts: list[tuple[str, float, str]] = []
    by_number = {item.number: item for item in facts}
    for number, segment in enumerate(segments):
        if number and segments[number - 1].end < segment.base:
            gap = segment.base - segments[number - 1].end
            parts.append(("missing", 0.0, f"missing before {segment.path.name}: {words.size(gap)}"))
        parts.append(_segment(segment, by_number.get(number), ranges))
    share = -(-len(parts) // MAX_CELLS) or 1
    cells = []
    for place, first in enumerate(range(0, len(parts), share)):
        group = parts[first : first + share]
        state = min((item[0] for item in group), key=_RANK.index)
        title = group[0][2] if len(group) == 1 else f"{len(group)} segments: {group[0][2]} to {group[-1][2]}"
        filled = sum(item[1] for item in group) / len(group)
        cells.append(Cell(state, filled, title, place % COLUMNS, place // COLUMNS))
    return cells


def _segment(segment: MappedFile, facts: SegmentFacts | None, ranges: Sequence[LostRange]) -> tuple[str, float, str]:
    hit = [part for part in ranges if part.start < segment.end and part.end > segment.base]
    name = segment.path.name
    if facts is None:
        return ("damaged" if hit else "empty"), 0.0, f"{name}: empty, preallocated"
    filled = (facts.end - segment.base) / segment.size if segment.size else 0.0
    filled = min(1.0, max(0.0, filled))
    holds = f"{name}: {words.counted(facts.records, 'message')}"
    if facts.failure:
        return "unreadable", filled, f"{holds}, cannot be read to its end"
    if hit:
        lost = sum(min(part.end, segment.end) - max(part.start, segment.base) for part in hit)
        return "damaged", filled, f"{holds}, {words.size(lost)} damaged"
    return "valid", filled, holds


def damage_map(start: int, end: int, ranges: Sequence[LostRange]) -> list[Mark]:
    """Returns the positions of damaged ranges between two physical offsets, each wide enough to be visible."""
    total = max([end, *(lost.end for lost in ranges)]) - start
    marks: list[Mark] = []
    for lost in ranges:
        left = max(0.0, (lost.start - start) / max(1, total)) * WIDTH
        width = max(_NARROWEST, (lost.end - lost.start) / max(1, total) * WIDTH)
        left = min(left, WIDTH - _NARROWEST)
        if marks and left < marks[-1].left + marks[-1].width and len(marks) >= MAX_CELLS:
            continue  # it would not be seen
        marks.append(
            Mark(
                round(left, 2),
                round(min(width, WIDTH - left), 2),
                f"{lost.start} to {lost.end}: {lost.kind}, {words.size(lost.end - lost.start)}",
            )
        )
    return marks
