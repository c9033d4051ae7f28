"""Everything that long work needs: parts, worker processes, resume files, progress, throttling, atomic files.

Knows no store and no format; the layers above decide what a part is and what is written. Docs page:
docs/architecture.md.
"""
