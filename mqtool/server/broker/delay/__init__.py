"""Delayed messages: by delay level (`schedule`) and by delivery time (`timer`, whose files are in `timer_files`)."""
