"""Starting on a store: its lock, the plan of recovery, and carrying it out."""
