"""The name server: `server.NameServer` listens, `routes.Routes` has the topic routes. Docs page: docs/protocol.md."""
