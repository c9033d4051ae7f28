"""scan: the messages of a store as lazy Arrow batches, reading only what conditions need."""
