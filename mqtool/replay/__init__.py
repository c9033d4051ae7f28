"""Messages sent again from a store, JSON Lines or an export: into a store, whatever the runs die of, or to brokers.

`run.replay(request)` stores them, `to_broker.replay_to(request, sender)` sends them. Docs page: docs/replay.md.
"""
