"""RocketMQ stores in Spark: a data source for batch and streams, and exports run by executors.

The only place that imports pyspark. Docs pages: docs/spark.md, docs/spark-cluster.md.
"""

from mqtool.spark.plans import ask, explain, where

__all__ = ["ask", "explain", "where"]
