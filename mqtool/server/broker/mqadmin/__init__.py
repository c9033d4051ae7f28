"""Requests of `mqadmin` and other tools, by subject: `broker_admin`, `topic_admin` (with groups), `consumer_admin`.

Requests about lite topics are in `pop.lite`, those about users and permissions in `mqtool.server.auth.admin`.
"""
