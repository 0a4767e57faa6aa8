"""Shared by the tests of PostgreSQL."""
