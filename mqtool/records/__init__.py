"""The record core: finds, proves, decodes and dispatches the records of a log, as numpy and Arrow columns.

Opens no file and knows no directory. Offsets and record types come from `formats`; construct is not used here.
"""
