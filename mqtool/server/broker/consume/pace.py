"""Limits how often dispatch runs under load.

A dispatch round has a fixed cost, and while it runs, it competes with the event loop for the interpreter lock. In a
large round the cost per message is small, so each round is followed by a pause: a long one while no request waits for a
message, a short one as soon as a request does. The first message after an idle time is dispatched at once. The real
broker pauses for a millisecond after each round (ReputMessageService.run, 5.5.0).
"""

import threading
import time

LONGEST_REST_S = 0.01
"""Length of a pause in seconds while no request waits."""
SHORT_REST = 2
"""Length of a pause while a request waits, as a multiple of the CPU time of the round."""


class Pace:
    """Controls the pauses of a dispatch thread."""

    def __init__(self) -> None:
        self._woken = threading.Event()
        self._worked = 0.0
        self._is_over = False

    def wake(self) -> None:
        """Ends the current pause, because a request waits for a message that was put. Any thread may call it."""
        if not self._woken.is_set():
            self._woken.set()

    def stop(self) -> None:
        """Ends the current pause; later calls of `rest` do not pause."""
        self._is_over = True
        self._woken.set()

    def pause(self) -> None:
        """Pauses after a round. Must be called in the dispatch thread."""
        if self._is_over:
            return
        # CPU time of this thread since the last pause; waiting does not count.
        spent = max(0.0, time.thread_time() - self._worked)
        time.sleep(min(LONGEST_REST_S, SHORT_REST * spent))
        self._woken.wait(LONGEST_REST_S)
        self._woken.clear()
        self._worked = time.thread_time()
