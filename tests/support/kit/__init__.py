"""Shared by the tests of the contract kit."""
