from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.worker_processes import Crew


@pytest.fixture(scope="session")
def crew() -> Iterator[Crew]:
    """One crew for all tests: to start sixteen interpreters takes longer than what they do."""
    crew = Crew()
    yield crew
    crew.dismiss()


@pytest.fixture
def path(tmp_path) -> str:
    return str(tmp_path / "agent.db")
