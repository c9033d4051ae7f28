"""Rebuilding derived files from the CommitLog: queues, index, metadata. Writes to a new directory only.

What the broker would write is computed by `records.dispatch`; here it is decided where it goes, and it is written.
The store itself is only read. Docs page: docs/rebuild.md.
"""
