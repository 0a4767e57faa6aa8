"""Real servers: one that all tests share, and some that are killed, frozen and replaced."""

import shutil

import pytest

from memory_contract.faults.servers.postgres import PostgresServer, start_with_standby
from tests.support import postgres_server
from tests.support.worker_processes import WorkerPool


@pytest.fixture
def url():
    """A database with empty tables on the server that all share."""
    return postgres_server.emptied_database()


@pytest.fixture
def fresh_url():
    """A database without any tables."""
    return postgres_server.fresh_database()


@pytest.fixture(scope="session")
def worker_pool():
    """Sixteen processes."""
    worker_pool = WorkerPool()
    yield worker_pool
    worker_pool.dismiss()


@pytest.fixture
def server():
    """A server that a test may do anything to."""
    folder = postgres_server.new_folder()
    server = PostgresServer(folder / "server")
    server.create()
    server.start()
    yield server
    server.thaw()
    server.kill()
    shutil.rmtree(folder)


@pytest.fixture
def pair():
    """A primary, and a standby that has every commit before it is acknowledged."""
    folder = postgres_server.new_folder()
    primary, standby = start_with_standby(folder)
    yield primary, standby
    for server in (primary, standby):
        server.thaw()
        server.kill()
    shutil.rmtree(folder)
