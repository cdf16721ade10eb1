"""Engine processes: their settings, the lines that they read and write, the pool that assigns requests."""
