"""The parent side: it starts the child processes, reads their answers and loses no host."""
