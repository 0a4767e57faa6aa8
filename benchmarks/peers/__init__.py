"""Stores of other projects beside indelible and the bare driver: `make bench-peers`."""
