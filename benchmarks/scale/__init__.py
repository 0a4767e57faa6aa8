"""What grows with size and what does not: `make bench-scale`."""
