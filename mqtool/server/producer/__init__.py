"""A producer: queries topic routes from a name server, and sends messages to brokers. Docs page: docs/replay.md."""
