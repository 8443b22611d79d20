"""Signed passes: a controller signs that a node passed its gate, and the node proves it later."""
