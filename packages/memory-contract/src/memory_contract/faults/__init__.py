"""Bad days, on demand: what a store is put through beside the calls that are made to it."""
