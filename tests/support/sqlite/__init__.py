"""Shared by the tests of SQLite."""
