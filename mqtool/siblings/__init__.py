"""Stores of other systems behind one small interface; see `base` and `registry`."""
