"""Stores turned into stores of another shape with the same messages. Writes to a new directory only."""
