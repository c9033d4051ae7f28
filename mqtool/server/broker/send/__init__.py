"""Requests that store messages.

Start with `send_message`, which contains all rules of a send. `fast_path` handles the most frequent kind of send in
fewer steps, by the same rules. `transactions` handles half messages, commits and rollbacks, `consumer_sends` messages
that consumers send back, and replies.
"""
