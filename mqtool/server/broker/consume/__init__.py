"""Requests of consumers.

Start with `pull`, which delivers messages; `long_polling` holds requests until messages arrive. `consumers` handles
heartbeats, consumer offsets and queue locks, `assignment` decides which queues a client consumes.
"""
