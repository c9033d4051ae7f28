"""A layout that does not fit its value class is refused when it is declared, and a value that does not fit its field when it is written."""

import construct as cs
import pytest
from msgspec import Struct
from msgspec.structs import replace

from mqtool.errors import FormatError
from mqtool.formats import codec, equeue, tfchunk
from mqtool.formats.codec import Sequence, Unit


class Pair(Struct):
    first: int
    second: int


def test_a_unit_has_fields_of_fixed_size_only():
    with pytest.raises(TypeError, match="field 1 has no fixed size"):
        Unit("pair", Pair, "first" / cs.Int32ub, "second" / cs.VarInt)


@pytest.mark.parametrize("kind", [Unit, Sequence])
def test_the_fields_of_a_layout_are_those_of_its_value_class(kind):
    with pytest.raises(TypeError, match="fields of Pair are not those of the layout"):
        kind("pair", Pair, "first" / cs.Int32ub, "third" / cs.Int32ub)


def test_fields_of_two_byte_orders_have_no_common_struct():
    fields = codec.leading_fields(cs.Struct("first" / cs.Int32ub, "second" / cs.Int32ul))
    with pytest.raises(TypeError, match="two byte orders"):
        codec.struct_of(fields)


def test_bytes_that_contradict_a_layout_are_an_error_of_the_format():
    with pytest.raises(FormatError, match="magic"):
        codec.parse(cs.Struct("magic" / cs.Const(b"MQ")), b"QM", name="head")


def test_a_number_that_is_too_large_for_its_field_is_not_written():
    record = equeue.MessageRecord(0, b"", b"T", b"", b"", 0, b"", 0, 0, 0, 0)
    assert equeue.CURRENT.build(record)
    with pytest.raises(FormatError, match="cannot be written"):
        equeue.CURRENT.build(replace(record, queue_id=1 << 40))


def test_an_eventstore_record_of_an_unknown_version_is_not_written():
    with pytest.raises(FormatError, match="no type 1 of version 7"):
        tfchunk.build_record(tfchunk.Commit(1, 7, 0, 0, 0, 0, b"\0" * 16, 0))
