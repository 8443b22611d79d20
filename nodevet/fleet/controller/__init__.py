"""The parent side: starts the children, hears them, and loses no host."""
