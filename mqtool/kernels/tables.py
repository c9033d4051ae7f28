"""What the rows of the tables are that `fields.read` fills; for those who do not load it."""

INTS = ("total_size", "magic_code", "body_crc", "queue_id", "sys_flag")
"""Rows of the table of int32: fields of a record."""
LONGS = ("queue_offset", "physical_offset", "born_timestamp", "store_timestamp")
"""First rows of the table of int64: fields of a record."""
PLACES = ("body_start", "body_length", "topic_start", "topic_length", "properties_start", "properties_length")
"""The rows behind them, as `records.frames.Frames` has them."""
