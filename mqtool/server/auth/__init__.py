"""Users and permissions (ACL 2.0): who sends a request, and whether they may.

Docs page: docs/serve.md, "Users and permissions".
"""
