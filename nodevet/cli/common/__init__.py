"""What several commands share. Importing it costs nothing."""
