"""What keeps a state folder for months: a queue of runs, quotas, retention, backups, and the configuration."""
