"""Whole files at memory speed: numpy and Arrow columns from bytes-like objects.

Opens no file, knows no directory. Offsets and record types come from `formats`; no construct here.
"""
