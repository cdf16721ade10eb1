"""Memories over HTTP: documents are put, read and deleted, and chunks of them are found."""
