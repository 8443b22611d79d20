"""What several checks are made of: templates of questions that repeat."""
