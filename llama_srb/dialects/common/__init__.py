"""Parts that several dialects share: readers of fields, lists of texts, generations as frames or one body."""
