"""The journal of a run, written before each action, and the result that follows from it."""
