"""Stories over HTTP: writers keep them on the server, so that several devices share them."""
