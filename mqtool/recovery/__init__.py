"""What a broker's start does to a store: computed as data, then shown or carried out.

`predict` covers the releases of `formats.release.MEASURED`. Docs page: docs/recovery.md.
"""

from mqtool.recovery.outcome import Outcome, Plan
from mqtool.recovery.predict import predict

__all__ = ["Outcome", "Plan", "predict"]
