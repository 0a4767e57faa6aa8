"""How well and how fast search finds: `make bench-search DATA=path`."""
