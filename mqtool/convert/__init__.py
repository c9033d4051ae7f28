"""Converts a store into one of another layout with the same messages. Writes to a new directory only."""
