"""The shipped fixes: one file is one fix, named after the check it repairs."""
