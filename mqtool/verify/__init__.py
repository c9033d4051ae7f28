"""Checks a store: what is damaged, what is lost, what to do. Never changes anything.

`verify(store)` returns findings, losses and a verdict. Docs page: docs/verify.md.
"""

from mqtool.verify.catalogue import CATALOGUE
from mqtool.verify.findings import (
    Area,
    Finding,
    Losses,
    NextStart,
    Severity,
    State,
    Verification,
    corrections,
    cut_short,
)
from mqtool.verify.store import Options, examine, verify

__all__ = [
    "CATALOGUE",
    "Area",
    "Finding",
    "Losses",
    "NextStart",
    "Options",
    "Severity",
    "State",
    "Verification",
    "corrections",
    "cut_short",
    "examine",
    "verify",
]
