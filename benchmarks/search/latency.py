"""How long a search takes in a large store, and what the index costs: text by Zipf's law."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import psycopg

import indelible
from indelible import ChatMessage, MemoryStore, Status
from memory_contract.faults.servers.postgres import PostgresServer

WORDS = 50_000
SESSION_ENTRIES = 1000
# Sessions below one label: 10,000 entries.
GROUP_SESSIONS = 10
QUERIES = 100

Progress = Callable[[int, int], None]
Clock = Callable[[], float]


class Vocabulary:
    """Words whose frequency falls with their rank."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._words, self._weights = _list_words()

    def write(self, least: int, most: int) -> str:
        """Write a text of so many words."""
        count = self._random.randint(least, most)
        return " ".join(self._random.choices(self._words, cum_weights=self._weights, k=count))

    def choose(self, number: int) -> int:
        """Choose a number below another."""
        return self._random.randrange(number)


@cache
def _list_words() -> tuple[list[str], list[float]]:
    """List the words, and the sums of their frequencies."""
    sums = accumulate(1 / (number + 1) for number in range(WORDS))
    return [_spell(number) for number in range(WORDS)], list(sums)


def _spell(number: int) -> str:
    """Spell a number as a word that no stemmer changes."""
    letters = "bdfgjkmptvz"
    word = ""
    while True:
        number, letter = divmod(number, len(letters))
        word += letters[letter] + "o"
        if not number:
            return word + "x"


class Latency(NamedTuple):
    """Milliseconds of searches, at the median and at the 95th percentile."""

    median: float
    p95: float


class Size(NamedTuple):
    """Figures of a store of so many entries."""

    entries: int
    session: Latency
    group: Latency
    store: Latency
    megabytes: float
    index_megabytes: float


def grow(store: MemoryStore, entries: int, progress: Progress) -> None:
    """Fill a store with sessions of messages; those that are there stay."""
    for start in range(0, entries, SESSION_ENTRIES):
        number = start // SESSION_ENTRIES
        name = f"user-{number // GROUP_SESSIONS}/chat-{number % GROUP_SESSIONS}"
        if store.session(name).status is Status.NEW:
            words = Vocabulary(number)
            texts = (words.write(8, 40) for _ in range(min(SESSION_ENTRIES, entries - start)))
            store.add_messages(name, [ChatMessage(role="user", content=text) for text in texts])
        progress(start + SESSION_ENTRIES, entries)


def measure(
    store: MemoryStore, entries: int, clock: Clock = time.process_time
) -> Iterator[Latency]:
    """Measure searches in a session, below a label, and in the whole store."""
    words = Vocabulary(-1)
    sessions = entries // SESSION_ENTRIES
    for scope in ("session", "group", "store"):
        times: list[float] = []
        for _ in range(QUERIES):
            number = words.choose(sessions)
            user, chat = divmod(number, GROUP_SESSIONS)
            query = words.write(3, 8)
            # Searches wait for nothing but a server, of which the clock has the time: so other work
            # of the machine is left out.
            begun = clock()
            if scope == "session":
                store.search(query, sessions=[f"user-{user}/chat-{chat}"])
            elif scope == "group":
                store.search(query, under=f"user-{user}")
            else:
                store.search(query)
            times.append((clock() - begun) * 1000)
        yield Latency(statistics.median(times), statistics.quantiles(times, n=20)[-1])


def measure_size(folder: Path, entries: int, progress: Progress) -> Size:
    """Grow a SQLite store to a size and search it."""
    path = folder / f"{entries}.db"
    # How fast it is written is measured apart.
    with indelible.open(path, durability="process") as store:
        grow(store, entries, progress)
        session, group, whole = measure(store, entries)
    total = path.stat().st_size / 1e6
    return Size(entries, session, group, whole, total, _measure_index(path))


def measure_size_on_postgres(server: PostgresServer, entries: int, progress: Progress) -> Size:
    """Grow a store on PostgreSQL to a size and search it."""
    name = f"entries_{entries}"
    if name not in server.sql("SELECT datname FROM pg_database").split():
        server.sql(f"CREATE DATABASE {name}")
    url = server.url(name)
    with (
        indelible.open(url, timeout_s=60) as store,
        psycopg.connect(url, autocommit=True) as connection,
    ):
        grow(store, entries, progress)
        connection.execute("VACUUM ANALYZE indelible.entry")
        ((total, index),) = connection.execute(
            "SELECT pg_total_relation_size('indelible.entry'),"
            " pg_relation_size('indelible.entry_words')"
        )
        own = "SELECT pid FROM pg_stat_activity WHERE application_name = 'indelible'"
        processes = [pid for (pid,) in connection.execute(own)]

        def clock() -> float:
            return time.process_time() + sum(map(_read_processor_time, processes))

        session, group, whole = measure(store, entries, clock)
    return Size(entries, session, group, whole, total / 1e6, index / 1e6)


def _read_processor_time(pid: int) -> float:
    """Read the seconds for which a process has run."""
    return int(Path(f"/proc/{pid}/schedstat").read_text("utf-8").split()[0]) / 1e9


def _measure_index(path: Path) -> float:
    import apsw  # noqa: PLC0415

    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    ((size,),) = db.execute(
        "SELECT (SELECT sum(length(block)) FROM entry_words_data)"
        " + (SELECT sum(length(sz) + 8) FROM entry_words_docsize)"
    ).fetchall()
    db.close()
    assert isinstance(size, int)
    return size / 1e6
