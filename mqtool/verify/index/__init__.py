"""Checks of index files against the log. Start with `index_file`."""
