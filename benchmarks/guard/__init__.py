"""What one event costs, counted and not timed, beside the committed baseline."""
