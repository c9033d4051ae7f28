"""Both forms of the rules that have two: that in Python, and the compiled one."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from mqtool import native

IS_COMPILED = native.in_use()

FORMS = (False, True) if IS_COMPILED else (False,)
"""Values of `form` that can be asked for."""

needs_native = pytest.mark.skipif(not IS_COMPILED, reason="needs the extension modules")


@contextmanager
def form(*, compiled: bool) -> Iterator[None]:
    """Uses one form of the rules."""
    assert IS_COMPILED or not compiled
    before, native.is_enabled = native.is_enabled, compiled
    try:
        yield
    finally:
        native.is_enabled = before
