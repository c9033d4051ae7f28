"""Delayed messages: by delay level (`schedule`) and by delivery time (`timer`)."""
