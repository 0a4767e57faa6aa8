"""For a project's own tests: stores that are made for one test, and work in other processes."""

from __future__ import annotations

from indelible.testing.processes import (
    ChildError,
    Started,
    run_in_process,
    start_in_process,
    starting,
)

__all__ = ["ChildError", "Started", "run_in_process", "start_in_process", "starting"]
