"""How long work is done, whatever it is: parts, worker processes, resume files, progress, throttle, complete files.

Knows no store and no format; the layers above say what a part is and what is written. Docs page: docs/architecture.md.
"""
