"""Apply approved fixes: plan (pure), approve, apply, roll back."""
