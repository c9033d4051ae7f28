"""Handles requests of consumers: pulls and long polling, queries, offsets, heartbeats, locks and queue assignment."""
