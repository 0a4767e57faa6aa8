"""One PostgreSQL server for all tests of a process, started by the first that needs it."""

import atexit
import itertools
import shutil
import tempfile
from pathlib import Path

import psycopg

from memory_contract.faults.servers.postgres import PostgresServer

TABLES = ("session", "entry", "snapshot", "journal", "kept_key", "quarantine")

_running: list[PostgresServer] = []
_numbers = itertools.count(1)


def new_folder():
    """A folder that the server may enter, whoever it runs as; pytest's own may be closed to it."""
    folder = Path(tempfile.mkdtemp(prefix="indelible-postgres-"))
    folder.chmod(0o755)
    return folder


def server():
    """The server, running."""
    if not _running:
        started = PostgresServer(new_folder() / "shared")
        started.create()
        started.start()
        _running.append(started)
        atexit.register(end)
    return _running[0]


def end():
    """End the server, if there is one."""
    while _running:
        ended = _running.pop()
        ended.remove()
        shutil.rmtree(ended.folder.parent)


def fresh_database():
    """The URL of a database that nobody has seen."""
    name = f"fresh_{next(_numbers)}"
    server().sql(f"CREATE DATABASE {name}")
    return server().url(name)


def emptied_database():
    """The URL of a database whose tables are there and hold nothing: quicker than a fresh one."""
    return emptied(server())


def emptied(running):
    """The URL of the first database of a server, with nothing in its tables."""
    url = running.url()
    with psycopg.connect(url, autocommit=True) as connection:
        if connection.execute("SELECT to_regclass('indelible.about')").fetchone()[0]:
            connection.execute("".join(f"DELETE FROM indelible.{table};" for table in TABLES))
    return url
