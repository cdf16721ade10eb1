"""A request as data: fields, their values, how a client's body is read. Imports nothing of ours."""
