"""The broker: request processors on top of the engine.

`Broker` (in `broker`) owns the tables and services, and hands out one handler per request code. Nothing here parses
frames or opens sockets. Docs page: docs/serve.md.
"""
