"""`python -m memory_contract` is the command `memory-contract`."""

from memory_contract.cli import run

run()
