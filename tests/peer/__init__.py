"""llama.cpp's tests of its own server, run against this server."""
