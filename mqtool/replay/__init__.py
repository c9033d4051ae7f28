"""Messages sent again: from a store, JSON Lines or an export into a store, once, whatever the runs die of; or to brokers.

`replay(request)` in `run` stores them, `replay_to(request, sender)` in `to_broker` sends them. Docs page: docs/replay.md.
"""
