"""The broker: request handlers and background services on top of the engine.

`Broker` (in `broker`) has the store and the tables. The packages have the handlers, by kind of request; each takes the
broker, and names its request codes. `BrokerService` (in `service`) builds, starts and stops them. Nothing here parses
frames or opens sockets, except `registration`, which calls name servers. Docs page: docs/serve.md.
"""
