"""The disk below SQLite, made to fail, to remember what was written, or to end the process."""
