"""Files and batches over HTTP, in OpenAI's form; the lines of a batch are requests of its owner."""
