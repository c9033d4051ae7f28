"""Messages for later: delay levels (`schedule`) and times to the second (`timer`)."""
