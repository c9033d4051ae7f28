"""Requests that store messages: sends, replies, messages sent back, and the ends of transactions.

`send_message` has every rule of a send. `fast_path` serves the most frequent send in fewer steps, with the same rules.
"""
