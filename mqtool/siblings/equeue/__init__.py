"""EQueue's chunk store: read, verify, explain, rebuild, salvage, write. See docs/formats/equeue.md."""
