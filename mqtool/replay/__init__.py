"""Messages sent again: from a store, JSON Lines or an export into a store, once, whatever the runs die of.

`replay(request)` in `run` is the way in. Docs page: docs/replay.md.
"""
