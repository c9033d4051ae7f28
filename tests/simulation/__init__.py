"""Deterministic fault simulation: a seed decides everything that happens, and gives the same run again."""
