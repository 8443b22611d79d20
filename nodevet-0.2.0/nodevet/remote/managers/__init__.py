"""Other managers of what a fix can change: units, tuned, cron, tmpfiles.d and others."""
