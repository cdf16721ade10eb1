"""Stories of any length: memory, lore, summary, the newest text and a note make a prompt that fits."""
