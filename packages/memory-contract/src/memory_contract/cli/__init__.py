"""The command `memory-contract`."""
