"""Users and permissions (ACL 2.0): authenticates senders of requests, and authorizes requests.

Docs page: docs/serve.md, "Users and permissions".
"""
