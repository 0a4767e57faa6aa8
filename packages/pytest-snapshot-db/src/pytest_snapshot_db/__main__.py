"""`python -m pytest_snapshot_db` is the command `snapshot-db`."""

from pytest_snapshot_db.cli import run

run()
