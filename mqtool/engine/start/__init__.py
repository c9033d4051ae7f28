"""Opening a store: its lock, what recovery would do, and carrying that out."""
