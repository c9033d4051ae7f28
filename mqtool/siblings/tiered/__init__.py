"""RocketMQ's tiered storage (POSIX provider): messages by queue, queues and index in segment files."""
