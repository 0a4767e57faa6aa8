"""Golden SQLite files for pytest: tests get copies of them, and are compared with them.

It works on any SQLite file. Tests use the fixture `snapshot_db`; its class is exported for
annotations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_snapshot_db.errors import GoldenError, GoldenWarning

if TYPE_CHECKING:
    from pytest_snapshot_db.fixture import SnapshotDb

__all__ = ["GoldenError", "GoldenWarning", "SnapshotDb"]


def __getattr__(name: str) -> Any:
    # The plugin and the command line import this package, and need no fixture.
    if name == "SnapshotDb":
        from pytest_snapshot_db.fixture import SnapshotDb  # noqa: PLC0415

        return SnapshotDb
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
