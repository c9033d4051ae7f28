"""What value classes have in common.

A value class is a `msgspec.Struct`. It is declared like a dataclass, but its class is created forty times sooner, which
decides how fast a command starts: see docs/decisions/0013-value-classes.md.
"""

from collections.abc import Callable
from typing import Any

from msgspec import Struct, structs


def asdict(value: Struct) -> dict[str, Any]:
    """Returns the fields of a value by name; values inside it, also those in lists and dicts, become dicts too."""
    return {name: _plain(field) for name, field in structs.asdict(value).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Struct):
        return asdict(value)
    if isinstance(value, list | tuple):
        items = [_plain(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return value


def repr_without(*hidden: str) -> Callable[[Any], str]:
    """Returns a `__repr__` for a value class that leaves out some fields, such as passwords and long contents."""

    def shown(self: Struct) -> str:
        fields = (f"{name}={value!r}" for name, value in structs.asdict(self).items() if name not in hidden)
        return f"{type(self).__name__}({', '.join(fields)})"

    return shown
