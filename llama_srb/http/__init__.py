"""The HTTP server: the only package that uses aiohttp."""
