"""What a server tells of itself: metrics, logs."""
