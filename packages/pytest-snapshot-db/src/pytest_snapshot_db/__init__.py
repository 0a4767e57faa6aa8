"""Golden SQLite files for pytest: tests get copies of them, and are compared with them.

It works on any SQLite file. What a test uses is the fixture `snapshot_db`; its class is here for
annotations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_snapshot_db.errors import GoldenError, GoldenWarning

if TYPE_CHECKING:
    from pytest_snapshot_db.fixture import SnapshotDb

__all__ = ["GoldenError", "GoldenWarning", "SnapshotDb"]


def __getattr__(name: str) -> Any:
    # Whoever compares files on the command line needs no pytest.
    if name == "SnapshotDb":
        from pytest_snapshot_db.fixture import SnapshotDb  # noqa: PLC0415

        return SnapshotDb
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
