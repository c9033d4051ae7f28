"""What kernels and their callers agree on: rows of tables, and memory; so that callers need not load the kernels."""

INTS = ("total_size", "magic_code", "body_crc", "queue_id", "sys_flag")
"""Rows of the table of int32: fields of a record."""
LONGS = ("queue_offset", "physical_offset", "born_timestamp", "store_timestamp")
"""First rows of the table of int64: fields of a record."""
PLACES = ("body_start", "body_length", "topic_start", "topic_length", "properties_start", "properties_length")
"""The following rows, as in `records.frames.Frames`."""

SPARE = 8
"""Bytes of a window's memory after what a kernel reads into it, so that words of eight bytes may be read at its end."""
