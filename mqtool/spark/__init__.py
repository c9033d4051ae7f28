"""RocketMQ stores in Spark: a data source for batch and streams, and exports run by executors.

The only place that imports pyspark. Docs pages: docs/lake.md, docs/spark-cluster.md.
"""

from mqtool.spark.options import ask, where

__all__ = ["ask", "where"]
