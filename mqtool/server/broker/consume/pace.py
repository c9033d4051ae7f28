"""Pace: how often dispatch runs while messages pour in.

A round of dispatch has a price of its own, and while it runs, the event loop shares the interpreter with it. Of many
messages at once each costs little, so a round is followed by a rest: a long one while nobody waits for what it would
bring, a short one as soon as somebody does. The first message after a silence is dispatched at once. The real broker
rests a millisecond after each round (ReputMessageService.run, 5.5.0).
"""

import threading
import time

LONGEST_REST_S = 0.01
SHORT_REST, LONG_REST = 2, 8
"""So many times as long as it worked the thread rests at least, and at most: with somebody waiting, and with nobody."""


class Pace:
    """The rests of one dispatching thread."""

    def __init__(self) -> None:
        """Starts with nobody waiting."""
        self._wanted = threading.Event()
        self._worked = 0.0
        self._is_over = False

    def hurry(self) -> None:
        """Ends the rest: somebody waits for a message that was put. Any thread may call it."""
        if not self._wanted.is_set():
            self._wanted.set()

    def end(self) -> None:
        """Ends this rest and all others."""
        self._is_over = True
        self._wanted.set()

    def rest(self) -> None:
        """Rests after a round. For the dispatching thread."""
        if self._is_over:
            return
        # Its own processor time: what it did since the last rest, sleep excluded.
        spent = max(0.0, time.thread_time() - self._worked)
        time.sleep(min(LONGEST_REST_S, SHORT_REST * spent))
        self._wanted.wait(min(LONGEST_REST_S, (LONG_REST - SHORT_REST) * spent))
        self._wanted.clear()
        self._worked = time.thread_time()
