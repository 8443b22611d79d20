"""What the commands and `nodevet gate` do with passes."""
