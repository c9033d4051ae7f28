"""Handles requests that store messages: sends, replies, messages sent back, and commits and rollbacks of transactions.

`send_message` contains all rules of a send. `fast_path` handles the most frequent kind of send in fewer steps, by the
same rules.
"""
