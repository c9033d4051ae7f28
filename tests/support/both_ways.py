"""verify by array arithmetic and by kernels: the same verdict, finding by finding."""

from pathlib import Path

from msgspec.structs import replace

import mqtool
from mqtool import kernels
from mqtool.store import Store
from mqtool.verify import Verification, verify


def verify_both_ways(store: Store) -> Verification:
    """Checks a store; where there are kernels, once more with them, and asserts that they find the same."""
    found = verify(store)
    if kernels.load() is not None:
        with kernels.use(kernels.LARGE):
            assert _timeless(verify(store)) == _timeless(found)
    return found


def _timeless(found: Verification) -> Verification:
    return replace(found, statistics=replace(found.statistics, seconds=0.0))


def open_and_verify_both_ways(root: Path) -> Verification:
    """Opens a store and checks it."""
    with mqtool.open(root) as store:
        return verify_both_ways(store)
