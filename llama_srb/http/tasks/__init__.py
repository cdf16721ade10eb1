"""Paths of tasks: `handlers` has completions, chats, the stream for EventSource, and exact prompts."""
