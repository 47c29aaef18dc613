"""What a report means for the one who reads it: findings, targets, a checklist."""
