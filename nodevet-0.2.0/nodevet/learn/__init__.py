"""Learn from good nodes: capture them as a baseline, or compare them."""
