"""Stores rows of JSON Lines or Parquet as messages; shared by `append` and `replay`."""
