"""What fixes consist of: their types, and helpers that several fixes share."""
