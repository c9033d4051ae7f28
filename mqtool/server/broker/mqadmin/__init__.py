"""Handles requests of `mqadmin` and other tools, by subject: the broker, its topics and groups, its consumers."""
