"""What fixes are made of: their nouns, and what several of them share."""
