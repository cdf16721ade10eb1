"""The HTTP API: routes, handlers, middlewares, streams."""
