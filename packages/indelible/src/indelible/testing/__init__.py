"""For tests: fixtures, functions in other processes, and the target of the contract kit.

Fixtures are opt-in: `pytest_plugins = ["indelible.testing"]` in a `conftest.py`.
"""

from __future__ import annotations

from contextlib import suppress

from indelible.testing.processes import (
    ChildError,
    Started,
    run_in_process,
    start_in_process,
    starting,
)

__all__ = ["ChildError", "Started", "run_in_process", "start_in_process", "starting"]

# The contract kit imports this package where pytest need not be installed.
with suppress(ModuleNotFoundError):
    from indelible.testing.fixtures import (  # noqa: F401 (pytest finds them here)
        async_memory_store,
        memory_store,
        memory_store_url,
        pytest_addoption,
        run_in_process_fixture,
        start_in_process_fixture,
    )
