"""WebSockets: `client_socket` reads and sends messages, `requests` has requests, `conversation` a chat."""
