"""A request as data: its fields, their values, and how a client's body is parsed. Imports nothing of ours."""
