"""The child side: the processes that hold the SSH sessions."""
