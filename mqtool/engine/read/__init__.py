"""Reads messages of a queue, by key and by time, with the broker's limits and statuses."""
