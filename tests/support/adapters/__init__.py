"""Shared by the tests of the adapters."""
