"""Checks of the CommitLog: segments, records, continuity. Start with `segment`."""
