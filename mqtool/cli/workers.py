"""The number of workers that read a log."""

SMALL = 128 << 20
"""Bytes of the CommitLog up to which further processes cost more time than they save."""


def workers(jobs: int | None, log_bytes: int) -> int:
    """Returns `--jobs`; the default is one for a small log, otherwise one for each processor."""
    from mqtool.jobs.pool import available

    return jobs or (1 if log_bytes < SMALL else available())
