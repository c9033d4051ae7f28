"""Every code that `verify` can report: what it means, what to do. Codes are stable: none is renamed or reused.

docs/checks.md is generated from here, `mqtool checks` prints it.
"""

from mqtool.verify.catalogue import derived, log, surroundings
from mqtool.verify.catalogue.check import Check

CATALOGUE: dict[str, Check] = {
    check.code: check for check in (*log.CHECKS, *derived.QUEUE_CHECKS, *derived.INDEX_CHECKS, *surroundings.CHECKS)
}
"""By code, in the order of the areas."""

__all__ = ["CATALOGUE", "Check"]
