"""`python -m indelible` is the `indelible` command."""

from indelible.cli.main import run

run()
