"""Converts Java beans in configuration files to value classes and back, by one mechanical rule.

A field `read_queue_nums` is the member `readQueueNums`; None means that the member is absent; members unknown to the
class are kept in its `extra`. The broker writes members in alphabetical order.
"""

import math
import re
from types import NoneType
from typing import Any, TypeVar, get_args, get_type_hints

from msgspec import Struct

from mqtool.errors import FormatError
from mqtool.formats.config_json import Document

T = TypeVar("T")
B = TypeVar("B", bound=Struct)

_DIGITS = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_EXTRA = "extra"
_NAME = "configuration"


def bean_of(kind: type[B], value: Any, path: str) -> B:
    """Returns a document as a value of a class; absent members get the class's defaults.

    Raises:
        FormatError: a member has a wrong type.
    """
    rest = dict(expect(dict, value, path))
    known = {}
    for name, member, accepted in _members(kind):
        stored = rest.pop(member, None)
        if stored is not None:
            known[name] = expect(accepted, stored, f"{path}.{member}")
    if _EXTRA in kind.__struct_fields__:
        known[_EXTRA] = rest
    return kind(**known)


def document_of(bean: Any) -> Document:
    """Returns the members of a bean, including extra ones, in the broker's order."""
    members = dict(getattr(bean, _EXTRA, {}))
    for name, member, _ in _members(type(bean)):
        value = getattr(bean, name)
        if value is not None:
            members[member] = value
    return {member: members[member] for member in sorted(members)}


def table_of(document: Document, member: str, kind: type[B]) -> dict[str, B]:
    """Removes a table of beans from a document and returns it; an absent one is empty."""
    stored = document.pop(member, None)
    table = expect(dict, {} if stored is None else stored, member)
    return {str(name): bean_of(kind, value, f"{member}.{name}") for name, value in table.items()}


def expect(kind: type[T], value: Any, path: str) -> T:
    """Returns a value of the expected type.

    Numbers and Booleans are converted as fastjson converts them for the broker (1.2.69 in 4.9.7, 2.0.59 in 5.5.0), but
    not where the two differ, such as an empty text. `recovery.table_shapes` has what each of them refuses.

    Raises:
        FormatError: it is of another type.
    """
    if kind is int:
        value = _number_of(value)
    elif kind is bool:
        value = _flag_of(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise FormatError(f"expected {kind.__name__}, found {str(value)[:40]!r}", layout=_NAME, field=path)
    return value


def _number_of(value: Any) -> Any:
    """Returns a value as the integer that the broker reads, or unchanged if the broker reads no integer."""
    if isinstance(value, list) and len(value) == 1 and not isinstance(value[0], bool):  # by 5.5.0 only
        value = value[0]
    elif isinstance(value, bool):
        return int(value)
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        return int(value)
    return int(value) if isinstance(value, float) and math.isfinite(value) else value


def _flag_of(value: Any) -> Any:
    """Returns a value as the Boolean that the broker reads, or unchanged if the broker reads no Boolean."""
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    return bool(value) if type(value) is int and value in (0, 1) else value


_members_of: dict[Any, tuple[tuple[str, str, Any], ...]] = {}


def _members(kind: Any) -> tuple[tuple[str, str, Any], ...]:
    """Returns (field name, member name, type) of a value class's fields without `extra`."""
    if kind not in _members_of:
        hints = get_type_hints(kind)
        names = [name for name in kind.__struct_fields__ if name != _EXTRA]
        _members_of[kind] = tuple((name, _camel(name), _plain(hints[name])) for name in names)
    return _members_of[kind]


def _plain(hint: Any) -> Any:
    """Returns the class to check for: `int` of `int | None`, `dict` of `dict[Any, Any]`."""
    options = [option for option in get_args(hint) if option is not NoneType] if NoneType in get_args(hint) else [hint]
    return getattr(options[0], "__origin__", options[0])


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)
