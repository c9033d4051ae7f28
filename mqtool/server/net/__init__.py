"""Connections: listening, calling, frames in and out, TLS, limits, and the check of accounts.

`listener` takes connections, `client` opens them, `peer` is one end of either. Nothing here knows what a request means,
except `acl`, which reads the topic and the group of one. Docs page: docs/protocol.md.
"""
