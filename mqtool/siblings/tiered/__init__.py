"""RocketMQ's tiered storage (POSIX provider): segment files with messages and units of each queue, and index files."""
