"""The server's metrics and log lines."""
