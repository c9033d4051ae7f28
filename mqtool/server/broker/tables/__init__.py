"""The tables of a broker: topics, groups, offsets, connected clients, queue locks, statistics, lost messages.

Start with `config_persister`, which writes those that have a file in `config`.
"""
