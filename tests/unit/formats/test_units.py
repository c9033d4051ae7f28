"""Every layout of a fixed size: derived readers agree with construct, and damage is an error of ours."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mqtool.errors import FormatError, TruncatedError
from mqtool.formats import codec
from mqtool.formats.codec import Unit
from tests.unit.formats.real import UNITS

each_unit = pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)


def values(unit: Unit, value: object) -> list[object]:
    return [getattr(value, field.name) for field in unit.fields]


def random_bytes(unit: Unit) -> st.SearchStrategy[bytes]:
    return st.binary(min_size=unit.size, max_size=unit.size)


@pytest.mark.slow
@each_unit
@given(data=st.data())
def test_the_derived_reader_gives_what_construct_parses(unit, data):
    raw = data.draw(random_bytes(unit))
    assert values(unit, unit.parse(raw)) == list(codec.parse(unit.layout, raw).values())


@pytest.mark.slow
@each_unit
@given(data=st.data())
def test_the_derived_dtype_gives_what_construct_parses(unit, data):
    raw = data.draw(random_bytes(unit))
    row = np.frombuffer(raw, unit.dtype)[0]
    found = [row[name].tobytes() if row[name].dtype.kind == "V" else int(row[name]) for name in unit.dtype.names]
    assert found == list(codec.parse(unit.layout, raw).values())


@each_unit
def test_the_dtype_has_the_layouts_names_and_offsets(unit):
    assert {name: unit.dtype.fields[name][1] for name in unit.dtype.names} == {f.name: f.offset for f in unit.fields}
    assert unit.dtype.itemsize == unit.size


@pytest.mark.slow
@each_unit
@given(data=st.data())
def test_building_what_was_parsed_gives_the_same_bytes(unit, data):
    raw = data.draw(random_bytes(unit))
    assert unit.build(unit.parse(raw)) == raw
    assert codec.build(unit.layout, codec.parse(unit.layout, raw)) == raw


@each_unit
def test_every_truncation_is_an_error_that_names_the_layout(unit):
    raw = bytes(range(unit.size))
    for size in range(unit.size):
        with pytest.raises(TruncatedError, match=f"{unit.size} bytes, found {size}") as caught:
            unit.parse(raw[:size])
        assert caught.value.layout == unit.name
        with pytest.raises(TruncatedError):
            codec.parse(unit.layout, raw[:size])


@each_unit
def test_a_unit_that_would_end_beyond_the_bytes_is_truncated(unit):
    raw = bytes(2 * unit.size)
    assert unit.parse(raw, unit.size) == unit.parse(raw)
    for position in (unit.size + 1, 2 * unit.size, 3 * unit.size):
        with pytest.raises(TruncatedError) as caught:
            unit.parse(raw, position)
        assert caught.value.position == position


@each_unit
def test_every_field_says_what_it_means(unit):
    assert all(field.docs for field in unit.fields)


@each_unit
def test_a_value_that_does_not_fit_its_field_is_refused(unit):
    value = unit.parse(bytes(unit.size))
    last = unit.fields[-1].name
    with pytest.raises(FormatError, match=re.escape(unit.name)):
        unit.build(replace(value, **{last: 1 << 70}))
