"""What developers run by hand; not installed."""
