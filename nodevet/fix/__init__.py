"""Putting right what is wrong: plan (pure), approve, apply, roll back."""
