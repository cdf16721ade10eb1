"""The server: the only place with aiohttp."""
