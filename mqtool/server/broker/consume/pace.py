"""Pace: how often dispatch runs under load.

A round of dispatch has a fixed cost, and while it runs, the event loop shares the interpreter lock with it. In a large
round a message costs little, so a round is followed by a pause: long while no request waits for a message, short as
soon as one does. The first message after a silence is dispatched at once. The real broker pauses a millisecond after
each round (ReputMessageService.run, 5.5.0).
"""

import threading
import time

LONGEST_REST_S = 0.01
"""Length of a pause while no request waits."""
SHORT_REST = 2
"""Length of a pause while a request waits, in times of the round's own."""


class Pace:
    """The pauses of one dispatching thread."""

    def __init__(self) -> None:
        """Starts without a waiting request."""
        self._wanted = threading.Event()
        self._worked = 0.0
        self._is_over = False

    def hurry(self) -> None:
        """Ends the pause, because a request waits for a message that was put. Any thread may call it."""
        if not self._wanted.is_set():
            self._wanted.set()

    def end(self) -> None:
        """Ends this pause; there are no more."""
        self._is_over = True
        self._wanted.set()

    def rest(self) -> None:
        """Pauses after a round. For the dispatching thread."""
        if self._is_over:
            return
        # Processor time of this thread since the last pause: waiting does not count.
        spent = max(0.0, time.thread_time() - self._worked)
        time.sleep(min(LONGEST_REST_S, SHORT_REST * spent))
        self._wanted.wait(LONGEST_REST_S)
        self._wanted.clear()
        self._worked = time.thread_time()
