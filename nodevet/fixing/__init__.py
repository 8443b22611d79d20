"""What fixes are made of: their nouns, and what several of them have in common."""
