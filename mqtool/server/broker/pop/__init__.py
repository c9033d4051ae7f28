"""Requests of POP consumers.

Start with `pop_message`, which delivers messages that stay invisible to others for a time. `check_points` records what
was popped and redelivers what is not acknowledged in time, `acks` acknowledges, and `lite` pops lite topics, to which
clients subscribe in `lite_subscriptions`. The order of a queue is kept by `OrderTable`, in `offsets`.
"""
