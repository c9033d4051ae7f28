"""Bytes to values and back: every layout of a message store. Opens no file."""
