"""Messages found by key, id or address. Start with `index_file` and `find`."""
