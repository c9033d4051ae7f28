"""Where units go when records are missing or state offsets that cannot be."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqtool.formats.consume_queue import CONSUME_QUEUE_UNIT
from mqtool.rebuild.placement import Cut, HoleBudget, NoteKind, Placement


def units(physical_offsets):
    made = np.zeros(len(physical_offsets), CONSUME_QUEUE_UNIT.dtype)
    made["physical_offset"] = physical_offsets
    return made


def placed(stated, *, chunks=(), budget=1 << 20, is_light=False):
    """Queue offset to number of the record there, and notes, after records that state these offsets."""
    holes = HoleBudget(0)
    holes.remaining = budget
    placement = Placement(holes, is_light=is_light)
    found = {}
    edges = [0, *chunks, len(stated)]
    for number in range(len(edges) - 1):
        low, high = edges[number], edges[number + 1]
        offsets = np.array(stated[low:high], np.int64)
        for step in placement.place(offsets, units(range(low, high)), is_end=high == len(stated)):
            if isinstance(step, Cut):
                found = {offset: record for offset, record in found.items() if offset < step.offset}
            else:
                found.update(enumerate(step.units["physical_offset"].tolist(), step.first))
    return found, [(note.kind, note.first, note.last) for note in placement.notes.items]


@given(st.integers(0, 50), st.integers(0, 60), st.lists(st.integers(0, 60), max_size=4))
def test_a_whole_log_is_placed_as_stated(first, count, chunks):
    stated = list(range(first, first + count))
    chunks = sorted({min(chunk, count) for chunk in chunks})
    assert placed(stated, chunks=chunks) == (dict(zip(stated, range(count), strict=True)), [])


CASES = {
    # stated offsets: {queue offset: record}, notes
    "a hole": ([0, 1, 5, 6], {0: 0, 1: 1, 5: 2, 6: 3}, [(NoteKind.HOLE, 2, 4)]),
    "a hole before the last": ([0, 1, 4], {0: 0, 1: 1, 4: 2}, [(NoteKind.HOLE, 2, 3)]),
    "two holes": ([0, 2, 4], {0: 0, 2: 1, 4: 2}, [(NoteKind.HOLE, 1, 1), (NoteKind.HOLE, 3, 3)]),
    "one states too much": ([0, 1, 90, 3, 4], {0: 0, 1: 1, 2: 2, 3: 3, 4: 4}, [(NoteKind.MISNUMBERED, 90, 90)]),
    "one states too little": ([5, 6, 2, 8, 9], {5: 0, 6: 1, 7: 2, 8: 3, 9: 4}, [(NoteKind.MISNUMBERED, 2, 2)]),
    "one states zero": ([5, 6, 0, 8], {5: 0, 6: 1, 7: 2, 8: 3}, [(NoteKind.MISNUMBERED, 0, 0)]),
    "one too many": ([0, 1, 7, 2, 3], {0: 0, 1: 1, 2: 3, 3: 4}, [(NoteKind.FOREIGN, 7, 7)]),
    "one twice": ([0, 1, 2, 2, 3], {0: 0, 1: 1, 2: 3, 3: 4}, [(NoteKind.RESTARTED, 2, 2)]),
    "made anew": ([0, 1, 2, 0, 1], {0: 3, 1: 4}, [(NoteKind.RESTARTED, 0, 2)]),
    "end lost and written again": ([3, 4, 5, 4, 5, 6], {3: 0, 4: 3, 5: 4, 6: 5}, [(NoteKind.RESTARTED, 4, 5)]),
    "a zero at the end is appended": ([0, 1, 0], {0: 0, 1: 1, 2: 2}, [(NoteKind.MISNUMBERED, 0, 0)]),
    "a smaller one at the end is appended": ([0, 1, 2, 1], {0: 0, 1: 1, 2: 2, 3: 3}, [(NoteKind.MISNUMBERED, 1, 1)]),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("cut", [None, 1, 2, 3])
def test_neighbours_decide_whom_to_believe(case, cut):
    stated, expected, notes = CASES[case]
    assert placed(stated, chunks=() if cut is None or cut >= len(stated) else (cut,)) == (expected, notes)


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ([0, 1, 90, 3, 4], {0: 0, 1: 1, 3: 3, 4: 4}),
        ([5, 6, 0, 9], {5: 0, 6: 1, 9: 3}),
        ([0, 1, 2, 1], {0: 0, 1: 1, 2: 2}),
    ],
)
def test_no_record_of_a_light_queue_is_moved(stated, expected):
    found, notes = placed(stated, is_light=True)
    assert found == expected
    assert NoteKind.FOREIGN in {kind for kind, _, _ in notes}


def test_a_jump_that_cannot_be_filled_moves_what_follows():
    found, notes = placed([0, 1, 1 << 40, (1 << 40) + 1, (1 << 40) + 2], budget=1000)
    assert found == {0: 0, 1: 1, 2: 2, 3: 3, 4: 4}
    assert notes == [(NoteKind.SHIFTED, 1 << 40, 1 << 40)]


def test_a_records_second_unit_in_a_queue_is_left_out():
    placement = Placement(HoleBudget(0))
    steps = list(placement.place(np.array([4, 4, 5]), units([10, 10, 20]), is_end=True))
    assert [(step.first, step.units["physical_offset"].tolist()) for step in steps] == [(4, [10, 20])]


@given(st.lists(st.integers(0, 12) | st.integers(0, 1 << 62), max_size=25), st.lists(st.integers(0, 25), max_size=3))
def test_whatever_is_stated_places_are_consecutive_and_chunks_do_not_matter(stated, chunks):
    chunks = sorted({min(chunk, len(stated)) for chunk in chunks})
    found, notes = placed(stated, budget=100)
    assert placed(stated, chunks=chunks, budget=100) == (found, notes)
    holes = [offset for kind, first, last in notes if kind is NoteKind.HOLE for offset in range(first, last + 1)]
    if found:
        assert set(range(min(found), max(found) + 1)) <= set(found) | set(holes)


def test_units_that_waited_keep_their_byte_order():
    placement = Placement(HoleBudget(1 << 20))
    steps = list(placement.place(np.array([0, 1, 4], np.int64), units([7, 8, 9])))
    steps += placement.place(np.array([5], np.int64), units([10]), is_end=True)
    assert b"".join(step.units.tobytes() for step in steps) == units([7, 8, 9, 10]).tobytes()


@pytest.mark.parametrize(
    ("stated", "claimed", "expected", "notes"),
    [
        ([0, 1, 2, 1, 2, 3, 4], {1: 1, 2: 2}, {0: 0, 1: 1, 2: 2, 3: 5, 4: 6}, [(NoteKind.FOREIGN, 1, 2)]),
        ([0, 1, 1, 2, 2, 3], {1: 1, 2: 4, 3: 5}, {0: 0, 1: 1, 2: 4, 3: 5}, [(NoteKind.FOREIGN, 1, 2)]),
        ([0, 1, 7, 8, 2, 3, 4], {7: 99, 8: 98}, {0: 0, 1: 1, 2: 4, 3: 5, 4: 6}, [(NoteKind.FOREIGN, 7, 8)]),
        ([0, 1, 2, 1, 2], {1: 3, 2: 4}, {0: 0, 1: 3, 2: 4}, [(NoteKind.FOREIGN, 1, 2)]),
        ([0, 1, 2, 1, 2], {}, {0: 0, 1: 3, 2: 4}, [(NoteKind.RESTARTED, 1, 2)]),
    ],
)
def test_no_record_takes_the_place_that_a_unit_gives_to_another(stated, claimed, expected, notes):
    placement = Placement(HoleBudget(1 << 20), claimed.get)
    found = {}
    for step in placement.place(np.array(stated, np.int64), units(range(len(stated))), is_end=True):
        if isinstance(step, Cut):
            found = {offset: record for offset, record in found.items() if offset < step.offset}
        else:
            found.update(enumerate(step.units["physical_offset"].tolist(), step.first))
    assert found == expected
    assert [(note.kind, note.first, note.last) for note in placement.notes.items] == notes
