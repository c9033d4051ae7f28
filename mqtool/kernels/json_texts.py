"""Separators between the values of a line of JSON; a separate module, so that callers need not load the kernels."""

FRAGMENTS = (
    b'{"physical_offset":',
    b',"store_size":',
    b',"topic":"',
    b'","queue_id":',
    b',"queue_offset":',
    b',"flag":',
    b',"sys_flag":',
    b',"born_timestamp":',
    b',"store_timestamp":',
    b',"born_host":"',
    b'","store_host":"',
    b'","reconsume_times":',
    b',"prepared_transaction_offset":',
    b',"properties":{',
    b'},"body_crc":',
    b',"body":"',
    b'","body_encoding":"text","offset_message_id":"',
    b',"body":null,"body_encoding":"none","offset_message_id":"',
    b'"}\n',
)
"""In the order in which they come; the two before the last begin alike, and a line has one of them."""
TEXTS = b"".join(FRAGMENTS)
"""An argument of the kernel."""

ESCAPED = 6
"""Bytes of a control character in JSON, of all characters the most."""
FIXED = 1024
"""Bytes of a line without its strings, at most."""
MAX_NAMES = 64
"""Properties of a record, whose names are compared with one another."""
