"""What a run did, written down before it does it, and what that comes to."""
