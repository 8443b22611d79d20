"""The shipped checks: one file is one check, and its name is its id everywhere."""
