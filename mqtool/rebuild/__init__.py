"""Rebuilds derived files from the CommitLog: queues, index, metadata. Writes only into a new directory.

`records.dispatch` computes what the broker would write; this package decides at which position, and writes it. The
store itself is only read. Docs page: docs/rebuild.md.
"""
