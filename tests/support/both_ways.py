"""verify by the rules in Python and by their compiled form: the same verdict, finding by finding."""

from pathlib import Path

from msgspec.structs import replace

import mqtool
from mqtool.store import Store
from mqtool.verify import Verification, verify
from tests.support.native import IS_COMPILED, form


def verify_both_ways(store: Store) -> Verification:
    """Checks a store; where rules are compiled, once more without them, and asserts that they find the same."""
    found = verify(store)
    if IS_COMPILED:
        with form(compiled=False):
            assert _timeless(verify(store)) == _timeless(found)
    return found


def _timeless(found: Verification) -> Verification:
    return replace(found, statistics=replace(found.statistics, seconds=0.0))


def open_and_verify_both_ways(root: Path) -> Verification:
    """Opens a store and checks it."""
    with mqtool.open(root) as store:
        return verify_both_ways(store)
