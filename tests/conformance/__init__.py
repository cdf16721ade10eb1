"""Foreign programs that are run against this server by hand; CI does not install them."""
