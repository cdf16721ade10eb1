"""The handlers of the routes: from a request's body to one body or a stream."""
