"""Network connections: listener, client, frames, TLS, limits, and access control.

`listener` accepts connections, `client` opens them, `peer` is one end of either. No module here depends on the meaning
of a request, except `acl`, which reads its topic and group. Docs page: docs/protocol.md.
"""
