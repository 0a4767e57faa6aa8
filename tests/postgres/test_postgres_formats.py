"""Tables of format 1 under today's code, and tables of today under the code of format 1."""

from importlib.resources import files

import psycopg
import pytest
from pg_workers import open_and_append

import indelible
from indelible import Summary
from indelible.backends import postgres
from indelible.backends.postgres.schema import FORMAT
from indelible.core.codec import encode

# As code of format 1 wrote: an append, and rows of a copy.
APPEND = """
    SELECT indelible.append('', 's', %s, NULL, NULL, NULL, '60000', 4::smallint, true, NULL, NULL,
        %s, 1)"""
INSERT = """
    INSERT INTO indelible.entry (session, position, written_at, deadline, generation, life, batch,
        kind, keep, key, opens, answers, payload)
    SELECT number, log_end, 0, NULL, generation, life, 1, 4, true, NULL, NULL, NULL, %s
    FROM indelible.session WHERE name = 's'"""
GROW = "UPDATE indelible.session SET log_end = log_end + 1 WHERE name = 's'"


def payload(text, *vector):
    return encode(Summary(text=text, vector=vector, embedder="e")).envelope


@pytest.fixture
def url(fresh_url):
    """A database as format 1 left it, with a summary in it; its server has pgvector."""
    first = files(postgres).joinpath("migrations", "0001.sql").read_text("utf-8")
    with psycopg.connect(fresh_url) as connection:
        connection.execute("CREATE EXTENSION vector; CREATE SCHEMA indelible")
        connection.execute(first)
        connection.execute(APPEND, (b"k", payload("first", 1.0, 0.0)))
    return fresh_url


def found(store):
    return [match.summary.text for match in store.search_summaries("s", [1, 0], 2, embedder="e")]


def test_sixteen_processes_bring_older_tables_up_to_date_at_once(crew, url):
    positions = crew.run(open_and_append, url)
    assert sorted(positions) == list(range(1, 17))
    with indelible.open(url) as store, psycopg.connect(url) as connection:
        assert store.verify().ok
        assert found(store) == ["first"]
        store.add_summary("s", "second", [1.0, 1.0], embedder="e")
        store.add_summary("s", "third", [0.0, 1.0], embedder="e")
        assert found(store) == ["first", "second"]
        about = dict(connection.execute("SELECT name, value FROM indelible.about").fetchall())
    assert about == {"format": FORMAT, "oldest_format": 1}


def test_the_code_of_format_1_goes_on_beside_ours(url):
    with indelible.open(url) as store, psycopg.connect(url, autocommit=True) as older:
        store.add_summary("s", "second", [1.0, 1.0], embedder="e")
        older.execute(APPEND, (b"l", payload("third", 1.0, 0.1)))
        older.execute(INSERT, (payload("fourth", 1.0, 0.05),))
        older.execute(GROW)
        assert found(store) == ["first", "fourth"]
        assert store.verify().ok
