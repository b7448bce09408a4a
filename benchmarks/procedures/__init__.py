"""What procedures cost and bear: time per action, kills, rollback of a large checkpoint, checking the audit log."""
