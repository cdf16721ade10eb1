"""What several dialects share: fields, texts, a generation as frames or as one body."""
