"""Who may call: keys, JSON web tokens, sessions, certificates."""
