"""Rebuilds derived files from the CommitLog: queues, index, metadata. Writes to a new directory only.

`records.dispatch` computes what the broker would write; this package decides where it goes, and writes it. The store
itself is only read. Docs page: docs/rebuild.md.
"""
