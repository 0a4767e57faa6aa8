"""One room for each engine. Backends never import one another."""
