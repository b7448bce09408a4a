"""The daemon: queue, callers, quotas, retention, backups and configuration."""
