"""One PostgreSQL server for all tests of a process, started by the first that needs it."""

import atexit
import itertools
from functools import cache

import psycopg

from memory_contract.faults.servers.managed import create_folder, start_until_exit
from memory_contract.faults.servers.postgres import PostgresServer

TABLES = ("session", "entry", "snapshot", "journal", "kept_key", "quarantine", "audit")

_numbers = itertools.count(1)


def new_folder():
    """A folder that the server may enter, whoever it runs as; pytest's own may be closed to it."""
    return create_folder("postgres")


@cache
def server():
    """The server, running."""
    return start_until_exit("postgres", lambda folder: PostgresServer(folder / "shared"))


def fresh_database():
    """The URL of a database that nobody has seen."""
    name = f"fresh_{next(_numbers)}"
    server().sql(f"CREATE DATABASE {name}")
    return server().url(name)


def emptied_database():
    """The URL of a database whose tables are there and hold nothing: quicker than a fresh one."""
    return emptied(server())


@cache
def connection(running):
    """A connection to the first database of a server that stays open."""
    opened = psycopg.connect(running.url(), autocommit=True)
    atexit.register(opened.close)
    return opened


def emptied(running):
    """The URL of the first database of a server, with nothing in its tables."""
    if connection(running).execute("SELECT to_regclass('indelible.about')").fetchone()[0]:
        connection(running).execute("".join(f"DELETE FROM indelible.{each};" for each in TABLES))
    return running.url()
