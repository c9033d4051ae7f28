"""Users and permissions (ACL 2.0): authenticates senders of requests, and authorizes requests.

Start with `guard`, which refuses requests and lists the permissions that they need. `tables` has users and permissions,
and `admin` handles mqadmin's requests to change them. Docs page: docs/serve.md, "Users and permissions".
"""
