"""Helpers shared by the tests: stores, damage, answers."""
