"""What a broker's start does to a store: computed as data, then shown or carried out.

`predict` covers the releases 4.9 and 5.5. Docs page: docs/recovery.md.
"""

from mqtool.recovery.outcome import Outcome, Plan
from mqtool.recovery.predict import predict

__all__ = ["Outcome", "Plan", "predict"]
