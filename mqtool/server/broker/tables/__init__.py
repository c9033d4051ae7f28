"""What a broker keeps besides messages: topics, groups, offsets, connected clients, queue locks, statistics.

Tables with a file in `config` are written by `config_persister`.
"""
