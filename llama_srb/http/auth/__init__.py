"""Authentication and authorization: API keys, JWTs, sessions, TLS certificates."""
