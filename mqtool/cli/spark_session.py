"""Work on Spark from the command line: the options that say where, and a session for as long as the work takes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from mqtool.cli.options import option
from mqtool.errors import UsageError

SPARK = "Spark"

MasterOption = Annotated[
    str, option("--master", metavar="URL", panel=SPARK, help="local[*], spark://HOST:PORT, yarn, k8s://…")
]
ConfOption = Annotated[
    list[str] | None, option("--conf", metavar="NAME=VALUE", panel=SPARK, help="Spark setting; may be repeated.")
]


@contextmanager
def spark_session(master: str, conf: list[str]) -> Iterator[Any]:
    """Starts a session and stops it.

    Args:
        master: URL of Spark's master.
        conf: `NAME=VALUE`, as typed.

    Raises:
        UsageError: a setting without a value.
        UnavailableError: pyspark or Java is missing, or Java is too old.
    """
    from mqtool.spark.session import build  # noqa: PLC0415 - an extra

    settings = dict(text.partition("=")[::2] for text in conf)
    unset = next((text for text in conf if not all(text.partition("=")[::2])), None)
    if unset is not None:
        raise UsageError(f"--conf {unset!r}: expected NAME=VALUE")
    session = build(master, settings)
    try:
        yield session
    finally:
        session.stop()
