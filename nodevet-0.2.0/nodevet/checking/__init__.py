"""What several checks share: templates, and how they read and compare evidence."""
