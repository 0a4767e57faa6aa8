"""Upgrades of the tables, by a migration that comes after the last one."""

import psycopg
import pytest

import indelible
from indelible.backends.postgres.schema import FORMAT
from tests.support.postgres.pg_workers import NEXT_FORMAT, next_format, upgrade_and_append


def read_about(url):
    with psycopg.connect(url) as connection:
        return dict(connection.execute("SELECT name, value FROM indelible.about").fetchall())


def has_new_column(url):
    with psycopg.connect(url) as connection:
        query = "SELECT count(*) FROM pg_attribute WHERE attname = 'of_the_next_format'"
        return connection.execute(query).fetchone() == (1,)


@pytest.fixture
def older_url(fresh_url):
    """A database as this format left it, with a message in it."""
    with indelible.open(fresh_url) as store:
        store.add_message("s", "user", "first")
    assert read_about(fresh_url) == {"format": FORMAT, "oldest_format": FORMAT}
    return fresh_url


def test_sixteen_processes_bring_older_tables_up_to_date_at_once(worker_pool, older_url):
    positions = worker_pool.run(upgrade_and_append, older_url)
    assert sorted(positions) == list(range(1, 17))
    assert read_about(older_url) == {"format": NEXT_FORMAT, "oldest_format": FORMAT}
    assert has_new_column(older_url)
    # The code of the older format goes on, since the tables say that it can.
    with indelible.open(older_url) as store:
        assert len(store.get_history("s")) == 17
        assert store.verify().ok


def test_an_empty_database_gets_all_migrations(fresh_url):
    with next_format(), indelible.open(fresh_url) as store:
        store.add_message("s", "user", "first")
        assert store.verify().ok
    assert read_about(fresh_url) == {"format": NEXT_FORMAT, "oldest_format": FORMAT}


def test_a_migration_that_fails_leaves_the_tables_as_they_were(older_url):
    script = "ALTER TABLE indelible.entry ADD COLUMN of_the_next_format text; SELECT 1 / 0"
    with next_format(script), pytest.raises(indelible.MemoryStoreBackendError, match="division"):
        indelible.open(older_url)
    assert read_about(older_url) == {"format": FORMAT, "oldest_format": FORMAT}
    assert not has_new_column(older_url)
    with indelible.open(older_url) as store:
        assert store.verify().ok
