"""The child side: processes that hold the SSH sessions."""
