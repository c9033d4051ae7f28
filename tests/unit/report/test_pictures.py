"""Pictures of a report, where there is more than they can show."""

from mqtool.report import page
from mqtool.report.page import chart, damage_map, diagram
from mqtool.story import MessageHistory, Step, StepKind
from mqtool.verify.findings import LostRange
from mqtool.verify.segment import Timeline


def test_of_very_many_damaged_ranges_those_that_can_be_seen_are_drawn(monkeypatch):
    monkeypatch.setattr(page, "MAX_CELLS", 3)
    places = [0, 10, 20, 30, 40, 500_000]
    ranges = [LostRange(start, start + 5, "bad-crc", "file", start) for start in places]
    drawn = [mark.title.partition(" ")[0] for mark in damage_map(0, 1_000_000, ranges)]
    assert drawn == ["0", "10", "20", "500000"]


def test_messages_of_another_age_are_counted_and_not_drawn():
    timeline = Timeline()
    for topic, minute, count in (("T", 1_000_000, 5000), ("T", 1_000_001, 5000), ("T", 10, 1), ("U", 9_000_000, 1)):
        timeline.messages[topic, minute] += count
        timeline.records[topic] += count
        timeline.bytes[topic] += count
    found = chart(timeline)
    assert found.outside == 2
    drawn, outside = found.rows
    assert [height for _, height in drawn.bars] == [1.0, 1.0]
    assert (drawn.messages, drawn.first, drawn.last) == (10_001, "1970-01-01 00:10", "1971-11-26 10:41")
    assert (outside.topic, outside.bars) == ("U", ())
    assert outside.words.startswith("1 message, all at 1987-")


def test_no_line_leads_from_one_group_to_another():
    steps = [
        Step(StepKind.SENT, "sent", "record", 1),
        Step(StepKind.PASSED, "one is past it", "offset", group="one"),
        Step(StepKind.PASSED, "two is past it", "offset", group="two"),
        Step(StepKind.SENT_BACK, "one sends it back", "record", 4, group="one"),
    ]
    found = diagram(MessageHistory(None, (), None, "T", [], steps))
    sent, one, two, back = ((dot.x, dot.y) for dot in found.dots)
    lines = [(sent, one), (sent, two), (one, back)]
    assert found.path == " ".join(f"M{x},{y} L{u},{v}" for (x, y), (u, v) in lines)
