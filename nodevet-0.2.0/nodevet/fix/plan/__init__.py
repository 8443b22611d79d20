"""From findings to a plan. Pure."""
