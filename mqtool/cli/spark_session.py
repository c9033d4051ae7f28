"""Who does the work: processes of this machine, or Spark, with a session for the duration of the work."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from msgspec import Struct

from mqtool.cli.options import option
from mqtool.errors import UsageError

SPARK = "Spark"

SparkOption = Annotated[bool, option("--spark", panel=SPARK, help="Run the tasks on Spark (needs Java 17).")]

MasterOption = Annotated[
    str, option("--master", metavar="URL", panel=SPARK, help="local[*], spark://HOST:PORT, yarn, k8s://…")
]

ConfOption = Annotated[
    list[str] | None, option("--conf", metavar="NAME=VALUE", panel=SPARK, help="Spark setting; may be repeated.")
]

LOCAL = "local[*]"

SMALL = 128 << 20
"""Bytes of the CommitLog up to which further processes cost more time than they save."""


class OnSpark(Struct, frozen=True):
    """Where Spark runs."""

    master: str  # URL
    settings: dict[str, str]  # name to value


def on_spark(spark: bool, master: str, conf: list[str] | None) -> OnSpark | None:
    """Returns the values of the three options; None without `--spark`.

    Raises:
        UsageError: a setting without a value, or options of Spark without `--spark`.
    """
    if not spark and (conf or master != LOCAL):
        raise UsageError("--master and --conf need --spark; add it")
    wrong = next((text for text in conf or () if not all(text.partition("=")[::2])), None)
    if wrong is not None:
        raise UsageError(f"--conf {wrong!r}: expected NAME=VALUE")
    return OnSpark(master, dict(text.partition("=")[::2] for text in conf or ())) if spark else None


@contextmanager
def spark_session(where: OnSpark) -> Iterator[Any]:
    """Starts a session and stops it.

    Raises:
        UsageError: the master's name is invalid.
        UnavailableError: pyspark or Java is missing, or Java is too old.
        SparkJobError: Spark does not start, or does not reach the master.
    """
    from mqtool.spark.session import build

    session = build(where.master, where.settings)
    try:
        yield session
    finally:
        session.stop()


def workers(jobs: int | None, log_bytes: int) -> int:
    """Returns `--jobs`; the default is one for a small log, otherwise one for each processor."""
    from mqtool.jobs.pool import available

    return jobs or (1 if log_bytes < SMALL else available())
