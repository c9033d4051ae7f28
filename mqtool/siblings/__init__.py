"""Stores of other systems behind one interface: EQueue, EventStore's TFChunk files, RocketMQ's tiered storage.

Start with `base`, the interface of a kind of store, and `registry`, which lists the kinds. A kind is a package. Kinds
share `frames` and `frame_scan` (records between two lengths), `tables` (columns) and `arrow` (batches and export).
Docs page: docs/kinds.md.
"""
