"""When appended bytes reach the disk, and what the checkpoint says then."""
