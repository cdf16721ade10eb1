"""One module a dialect: parse(body) -> CompletionRequest, and events -> bytes; pure, no I/O."""
