"""The tables of a broker: topics, groups, offsets, connected clients, queue locks, statistics.

`config_persister` writes those that have a file in `config`.
"""
