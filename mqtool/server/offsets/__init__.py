"""Reads, plans and sets consumer offsets on a running broker, over the admin protocol.

```
with BrokerPositions("127.0.0.1:10911") as broker:
    committed = broker.committed()
    plan = BrokerPlan(broker.address, broker.name, time, moves)
    done = apply_moves(broker, plan, save_undo=save)
```

Docs page: docs/howto/set-a-groups-position.md. Source: ConsumerManageProcessor, AdminBrokerProcessor, Broker2Client
(4.9.7, 5.5.0).
"""

from mqtool.server.offsets.apply_moves import AppliedMoves, apply_moves, check_broker
from mqtool.server.offsets.client import BrokerPositions
from mqtool.server.offsets.plan import BrokerPlan

__all__ = ["AppliedMoves", "BrokerPlan", "BrokerPositions", "apply_moves", "check_broker"]
