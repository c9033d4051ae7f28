"""Messages that a broker holds back or may deliver again: delays, timers, transactions, POP. Start with `pending`."""
