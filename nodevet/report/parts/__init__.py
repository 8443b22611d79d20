"""What the formats share: folding, words, hunks, layout, the pieces of a page."""
