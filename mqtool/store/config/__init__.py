"""Configuration: broker.conf, the files in `config/`, RocksDB tables, and rules that follow from them.

Start with `broker_config`.
"""
