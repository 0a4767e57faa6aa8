"""Tables that are partitioned by hash, as the how-to does it, are used by the same code."""

from pathlib import Path

import psycopg
import pytest

import indelible
from indelible.backends.postgres import search
from tests.support.ledger import check
from tests.support.postgres.pg_workers import write_batches
from tests.support.verbs import every_verb

PAGE = Path(__file__).parents[4] / "docs" / "how-to" / "postgresql.md"


@pytest.fixture
def partitioned(fresh_url):
    """A database whose tables were partitioned by the very words of the how-to."""
    indelible.open(fresh_url).close()
    blocks = PAGE.read_text("utf-8").split("```")
    (block,) = [block for block in blocks if "PARTITION BY HASH" in block]
    words = block.removeprefix("python\n").partition("with indelible.open")[0]
    exec(compile(words, str(PAGE), "exec"), {"url": fresh_url, "indelible": indelible})
    return fresh_url


def test_every_verb_works_on_partitions(partitioned):
    with indelible.open(partitioned) as store:
        every_verb(store)


def test_many_processes_append_to_partitions(worker_pool, partitioned):
    writes = [write for each in worker_pool.run(write_batches, partitioned, 3) for write in each]
    with indelible.open(partitioned) as store:
        check(store, writes)
        for n in range(40):
            store.add_message(f"s{n}", "user", "hi")
    with psycopg.connect(partitioned) as connection:
        used = connection.execute("SELECT count(DISTINCT tableoid) FROM indelible.entry").fetchone()
    assert used == (4,)


@pytest.mark.parametrize("analyzed", [False, True])
def test_the_index_of_words_covers_all_partitions(partitioned, monkeypatch, analyzed):
    monkeypatch.setattr(search, "SCAN_ENTRIES_MAX", 50)
    with indelible.open(partitioned) as store:
        for n in range(100):
            store.add_message(f"s{n}", "user", f"a cat number{n % 50}")
        if analyzed:
            with psycopg.connect(partitioned, autocommit=True) as connection:
                connection.execute("ANALYZE")
        hits = store.search("cats number7")
    assert {(hit.session_id, hit.dropped) for hit in hits} == {
        ("s7", ("cats",)),
        ("s57", ("cats",)),
    }
