"""Replays messages of a store, JSON Lines or an export into a store (resumable after a kill) or to brokers.

`to_store.replay(request)` stores them, `to_broker.replay_to(request, sender)` sends them. Docs page: docs/replay.md.
"""
