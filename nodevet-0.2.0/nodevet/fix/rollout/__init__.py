"""Applies an approved plan, proves it, and rolls it back."""
