"""One file per output format; each has `render(run) -> str`. Pure: findings in, text out."""
