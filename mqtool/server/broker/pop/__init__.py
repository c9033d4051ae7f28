"""Handles requests of POP consumers; includes the service that makes unacknowledged messages visible again."""
