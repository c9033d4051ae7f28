"""ConsumeQueues in files and in RocksDB, and reading a queue as a consumer does.

Start with `consume_queue` and `get_message`.
"""
