"""Flushes appended bytes to disk and advances the checkpoint."""
