"""The broker: request handlers and background services on top of the engine.

`Broker` (in `broker`) has the store (`messages`) and the tables (`config`, `topics`, `offsets`, `clients`, `stats`).
Each processor takes the broker and marks its handlers with their request codes: those of producers are in `send`, of
consumers in `pull`, `pop` and `consumers`, of mqadmin in `broker_admin`, `topic_admin`, `consumer_admin`, `pop.lite`
and `mqtool.server.auth`; `delay` delivers delayed messages. `BrokerService` (in `service`) creates, starts and stops
them. No module here parses frames or opens sockets, except `service`, which calls name servers. Docs page:
docs/serve.md.
"""
