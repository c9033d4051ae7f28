"""A Spark session for the command line: clear errors if Java is missing, and the settings that exports need."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from mqtool.commands import with_extra
from mqtool.errors import UnavailableError, UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MIN_JAVA = 17
_MASTER = re.compile(r"local(\[(\*|\d+)(,\s*\d+)?\])?|yarn|(spark|k8s)://\S+")

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.execution.pyspark.udf.hideTraceback.enabled": "true",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    "spark.python.worker.faulthandler.enabled": "true",
}
"""Settings of every session that mqtool starts; `--conf` overrides them."""

_LOGGING = Path(__file__).with_name("log4j2.properties")
LOCAL_SETTINGS = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}


def java_version() -> int | None:
    """Returns the major version of the Java that Spark would start; None if there is none."""
    home = os.environ.get("JAVA_HOME")
    program = shutil.which(str(Path(home) / "bin" / "java")) if home else shutil.which("java")
    if program is None:
        return None
    try:
        output = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except OSError:
        return None
    match = re.search(r'version "(\d+)(?:\.(\d+))?', output.stderr + output.stdout)
    if match is None:
        return None
    return int(match[2] or 1) if match[1] == "1" else int(match[1])


def require_spark() -> None:
    """Raises UnavailableError if pyspark or Java is missing, or Java is too old."""
    try:
        import pyspark  # noqa: F401, PLC0415
    except ImportError as error:
        raise UnavailableError(f"Spark needs pyspark and Java 17: {with_extra('spark')}") from error
    version = java_version()
    where = f"JAVA_HOME is {os.environ['JAVA_HOME']}" if os.environ.get("JAVA_HOME") else "JAVA_HOME is not set"
    if version is None or version < MIN_JAVA:
        known = version or "none"
        raise UnavailableError(
            f"Spark needs Java {MIN_JAVA} or newer but found {known} ({where}); install it, or leave out --spark"
        )


def build(master: str, conf: Mapping[str, str] | None = None) -> "SparkSession":
    """Starts a session of a master: `local[*]`, `spark://HOST:PORT`, `yarn`, …; `conf` overrides the defaults.

    Raises UsageError if the master URL is invalid, SparkJobError if Spark does not start, or does not reach the master,
    and as `require_spark`.
    """
    if not _MASTER.fullmatch(master):
        raise UsageError(f"--master {master!r}: expected local[N], spark://HOST:PORT, yarn or k8s://URL")
    if master == "yarn" and not (os.environ.get("HADOOP_CONF_DIR") or os.environ.get("YARN_CONF_DIR")):
        raise UsageError(
            "--master yarn: neither HADOOP_CONF_DIR nor YARN_CONF_DIR is set; set one to the cluster's "
            "configuration directory"
        )
    require_spark()
    from pyspark.sql import SparkSession  # noqa: PLC0415 - after the check, for its words

    from mqtool.spark.job import SparkJobError, last_words  # noqa: PLC0415
    from mqtool.spark.source import register  # noqa: PLC0415

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", LOCAL_SETTINGS["spark.driver.host"])
    _make_importable()
    builder = SparkSession.builder.master(master).appName("mqtool")
    local = LOCAL_SETTINGS if master.startswith("local") else {}
    quiet = {"spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"}
    for name, value in {**SETTINGS, **quiet, **local, **(conf or {})}.items():
        builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
    except Exception as error:  # whatever py4j and pyspark raise
        raise SparkJobError(f"Spark cannot start on {master}: {last_words(error)}") from error
    register(session)
    return session


def _make_importable() -> None:
    """Lets Python processes that Spark starts on this machine import this copy of mqtool."""
    home = str(Path(__file__).resolve().parents[2])
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if home not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([home, *paths])
