"""Which files expire and when, and their deletion."""
