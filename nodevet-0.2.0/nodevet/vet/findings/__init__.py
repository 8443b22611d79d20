"""Findings in words: what differs, what follows from what, equal differences folded. Pure."""
