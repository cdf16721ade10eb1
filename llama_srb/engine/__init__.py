"""The engine's processes: settings, the lines they read and write, which one serves a request."""
