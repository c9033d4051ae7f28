"""Requests of POP consumers, and the service that makes unacknowledged messages visible again."""
