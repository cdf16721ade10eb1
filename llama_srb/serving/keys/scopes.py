"""What a key may do: the scopes of the routes and calls. A key needs one of them."""

from typing import TypeAlias

Scopes: TypeAlias = tuple[str, ...]

NO_KEY: Scopes = ()
COMPLETE: Scopes = ("complete",)
CHAT: Scopes = ("chat",)
COMPLETE_OR_CHAT: Scopes = ("complete", "chat")
EMBED: Scopes = ("embed",)
MEMORY: Scopes = ("memory",)
BATCH: Scopes = ("batch",)
METRICS: Scopes = ("metrics",)
ADMIN: Scopes = ("admin",)
EVERY_KEY: Scopes = ("complete", "chat", "embed", "memory", "batch", "metrics")
