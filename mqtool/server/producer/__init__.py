"""A producer: the route of a topic from a name server, and messages sent to its brokers. Docs page: docs/replay.md."""
