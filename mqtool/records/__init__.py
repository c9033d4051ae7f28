"""The record core: records of a log found, proved, decoded and dispatched, as columns of numpy and Arrow.

Opens no file, knows no directory. Offsets and record types come from `formats`; no construct here.
"""
