"""The CommitLog: its segments, records and walks, and messages as values and lines of JSON. Start with `commit_log`."""
