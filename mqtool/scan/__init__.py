"""Reads the messages of a store as lazy Arrow batches, and only the parts of the log that the conditions need."""
