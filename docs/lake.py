"""From broker disk to lake in five minutes: the steps of docs/lake.md, as cells of a notebook and as a script.

    python docs/lake.py [STORE] [DIRECTORY]

Runs on a store that comes along. Needs duckdb and polars for two of its cells; the last ones need Java 17 and pyspark
and are left out without them.
"""

# %% A store to look at, and a directory that this script may fill
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
STORE = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "fixtures" / "orders-5.5.0" / "store"
LAKE = Path(sys.argv[2] if len(sys.argv) > 2 else tempfile.mkdtemp()) / "lake"
if LAKE.exists():
    shutil.rmtree(LAKE)
sys.path.insert(0, str(HERE))  # so that a checkout will do


def mqtool(*arguments: object) -> None:
    """Runs the command that a shell would: `mqtool export …`."""
    command = [sys.executable, "-m", "mqtool", *map(str, arguments)]
    subprocess.run(command, cwd=HERE, check=True)


# %% One command: everything that consumers could see, as Parquet
mqtool("export", STORE, "--output", LAKE / "once")

# %% Read it with pyarrow
import pyarrow.dataset as ds

messages = ds.dataset(LAKE / "once" / "messages", format="parquet")
print(messages.count_rows(), "messages")
orders = messages.to_table(columns=["topic", "queue_id", "queue_offset", "tags"], filter=ds.field("topic") == "Orders")
print(orders[:3])

# %% … with DuckDB
import duckdb

print(
    duckdb.sql(f"""
        SELECT topic, count(*) AS messages, min(store_timestamp) AS first, max(store_timestamp) AS last
        FROM '{LAKE}/once/messages/*.parquet' GROUP BY topic ORDER BY messages DESC LIMIT 5
    """)
)

# %% … with Polars
import polars as pl

print(
    pl.scan_parquet(f"{LAKE}/once/messages/*.parquet")
    .filter(pl.col("topic") == "Orders")
    .group_by("tags")
    .len()
    .sort("tags")
    .collect()
)

# %% Half messages that never came to anything: half, and no committed message names them
mqtool(
    "export",
    STORE,
    "--output",
    LAKE / "all",
    "--include",
    "all",
    "--columns",
    "topic,physical_offset,prepared_transaction_offset,unique_key,record_class",
)
print(
    duckdb.sql(f"""
        SELECT count(DISTINCT half.unique_key) AS unresolved
        FROM '{LAKE}/all/messages/*.parquet' AS half
        WHERE half.record_class = 'half' AND half.unique_key NOT IN (
            SELECT unique_key FROM '{LAKE}/all/messages/*.parquet'
            WHERE record_class = 'committed' AND prepared_transaction_offset > 0 AND unique_key IS NOT NULL)
    """)
)

# %% Directories by topic and day, bodies as JSON, customers hidden; what is not JSON is in rejected_values
mqtool(
    "export",
    STORE,
    "--output",
    LAKE / "json",
    "--topic",
    "Orders",
    "--topic",
    "Bodies",
    "--partition-by",
    "topic,date",
    "--body-type",
    "json",
    "--redact-columns",
    "keys,born_host",
)
print(sorted(str(path.parent.relative_to(LAKE)) for path in (LAKE / "json").rglob("*.parquet")))
print(
    duckdb.sql(f"SELECT topic, reason, count(*) FROM '{LAKE}/json/rejected_values/*.parquet' GROUP BY ALL ORDER BY ALL")
)

# %% Incremental: the second run finds nothing new
for _ in range(2):
    mqtool("export", STORE, "--output", LAKE / "daily", "--state", LAKE / "daily.state")

# %% The same from Python
from mqtool.export.plain import LocalRunner, export
from mqtool.export.run import ExportRequest
from mqtool.export.sources import resolve

request = ExportRequest(tuple(resolve([f"broker-a={STORE}"])), str(LAKE / "python"))
result = export(request, LocalRunner(workers=1))
print(result.manifest.totals["rows"])

# %% On Spark: a table, SQL, and the same export run by executors
from mqtool.errors import UnavailableError
from mqtool.spark.session import build, require_spark

try:
    require_spark()
except UnavailableError as reason:
    print(reason)
    sys.exit()

spark = build("local[2]")
frame = spark.read.format("rocketmq-store").option("topics", "Orders,Payments").load(f"broker-a={STORE}")
frame.createOrReplaceTempView("messages")
spark.sql("SELECT broker, topic, tags, count(*) FROM messages GROUP BY ALL ORDER BY ALL").show()

# %% … and a stream that ends with what is there
query = (
    spark.readStream.format("rocketmq-store")
    .load(f"broker-a={STORE}")
    .writeStream.foreachBatch(lambda batch, number: batch.write.mode("overwrite").parquet(f"{LAKE}/stream/{number:08}"))
    .option("checkpointLocation", str(LAKE / "stream.checkpoint"))
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
print(spark.read.parquet(f"{LAKE}/stream/*").count(), "messages by the stream")
spark.stop()
