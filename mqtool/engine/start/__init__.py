"""Opens a store: takes its lock, plans recovery, and carries the plan out."""
