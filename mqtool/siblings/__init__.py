"""Kinds of stores that are not RocketMQ's own, behind one small interface; see `base` and `registry`."""
