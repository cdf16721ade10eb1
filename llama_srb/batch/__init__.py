"""Batches in OpenAI's form: each line of a file is a request; its answer becomes a line of another file.

Knows neither the server nor the command line: both run batches with it, over HTTP.
"""
