"""Two stores joined as streams: orders of one broker with the payments of another that name them.

    python docs/stream_join.py ORDERS_STORE PAYMENTS_STORE DIRECTORY

Prints as JSON how many pairs there are, and goes on where it ended when it is run again. Needs Java 17 and pyspark.
Both streams read only the topic they need; watermarks bound what Spark keeps of each to an hour.
"""

# %% Streams with conditions that reach the stores
import json
import sys
from pathlib import Path

from mqtool.spark import where
from mqtool.spark.session import build

orders_store, payments_store, directory = sys.argv[1:]
spark = build("local[2]", {"spark.sql.shuffle.partitions": "2"})


def stream(store: str, topic: str, prefix: str):
    """Returns the keyed messages of a topic as a stream."""
    reader = spark.readStream.format("rocketmq-store")
    columns = ["topic", "keys", "queue_offset", "store_timestamp"]
    frame = where(reader, f"topic = '{topic}' AND keys IS NOT NULL", columns=columns).load(store)
    named = frame.selectExpr(
        "explode(keys) AS key", f"queue_offset AS {prefix}_offset", f"store_timestamp AS {prefix}_time"
    )
    return named.withColumnRenamed("key", f"{prefix}_key").withWatermark(f"{prefix}_time", "1 hour")


# %% The join: a payment within an hour of its order
orders, payments = stream(orders_store, "Orders", "order"), stream(payments_store, "Payments", "payment")
near = "payment_time BETWEEN order_time - INTERVAL 1 HOUR AND order_time + INTERVAL 1 HOUR"
pairs = orders.join(payments, orders.order_key == payments.payment_key).where(near)

# %% Each batch in a directory of its own, which a replay overwrites
out = Path(directory) / "pairs"
query = (
    pairs.writeStream.foreachBatch(lambda batch, n: batch.write.mode("overwrite").parquet(f"{out}/batch={n:08}"))
    .option("checkpointLocation", f"{directory}/checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
print(json.dumps({"pairs": spark.read.parquet(str(out)).count()}))
spark.stop()
