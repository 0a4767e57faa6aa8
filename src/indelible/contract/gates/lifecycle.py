"""Cases."""
