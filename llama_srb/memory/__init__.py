"""Memories: chunks of text with vectors, found again by their meaning. Knows no HTTP."""
