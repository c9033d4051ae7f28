"""Parses and builds every layout of a message store. Opens no file."""
