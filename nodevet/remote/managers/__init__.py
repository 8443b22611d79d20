"""Who else sets what a fix can touch: units, tuned, cron, tmpfiles.d and others."""
