"""Tasks: `turns` has the messages of a chat on a WebSocket, `made_prompt` the answer of /v1/prompt. Pure."""
