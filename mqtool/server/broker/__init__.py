"""The broker: request handlers and background services on top of the engine.

`Broker` (in `broker`) has the store and the tables. The packages contain the handlers by kind of request; each
processor takes the broker and lists its request codes. `BrokerService` (in `service`) creates, starts and stops them.
No module here parses frames or opens sockets, except `registration`, which calls name servers. Docs page:
docs/serve.md.
"""
