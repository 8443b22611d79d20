"""What runs on the node that has a pass."""
