"""Positions of consumer groups: where they are kept, how far behind they are, how they move. Start with `positions`."""
