"""Messages of a queue, by key and by time, with the real store's limits and statuses."""
