"""The live state of what a fix can touch; it never changes anything."""
