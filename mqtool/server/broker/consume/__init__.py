"""Requests of consumers: pull and its long polling, queries, offsets, heartbeats, locks and queue assignment."""
