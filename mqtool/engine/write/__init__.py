"""Appending records to the CommitLog: one message, a batch, columns of messages."""
