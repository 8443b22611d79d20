"""Who approves a plan, who may, and whether it is approved."""
