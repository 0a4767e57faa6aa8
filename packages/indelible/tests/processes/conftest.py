from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.stores import ON_FILES, empty_url
from tests.support.worker_processes import WorkerPool


@pytest.fixture(scope="session")
def worker_pool() -> Iterator[WorkerPool]:
    """One crew for all tests: to start sixteen interpreters takes longer than what they do."""
    worker_pool = WorkerPool()
    yield worker_pool
    worker_pool.dismiss()


@pytest.fixture(params=ON_FILES)
def path(request, tmp_path) -> str:
    """Where an empty store on a file is."""
    return empty_url(request.param, tmp_path)
