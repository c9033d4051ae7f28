"""Rows of JSON Lines or Parquet into messages of a store: what `append` and `replay` share."""
