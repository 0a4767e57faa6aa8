"""A disk below SQLite that can fail, record what was written, or kill the process."""
