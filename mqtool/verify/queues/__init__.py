"""Checks of ConsumeQueues against the log. Start with `consume_queue`."""
