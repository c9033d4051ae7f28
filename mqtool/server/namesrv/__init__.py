"""The name server: who serves which topic. `server.NameServer` listens, `routes.Routes` knows. docs/protocol.md."""
