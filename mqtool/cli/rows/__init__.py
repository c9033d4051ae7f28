"""Rows of output: messages, entries, fields, references. Start with `message_rows`."""
