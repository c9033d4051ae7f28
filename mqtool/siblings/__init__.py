"""Stores of other systems behind one interface; see `base` and `registry`."""
