"""`python -m indelible` is the `indelible` command."""

from indelible.cli import run

run()
