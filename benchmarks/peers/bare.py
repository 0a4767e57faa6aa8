"""The bare drivers: one statement for each message, and nothing of what a store adds to it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.peers.peer import Message, Peer


def _written(message: Message) -> str:
    return json.dumps({"role": message.role, "content": message.text})


def _read(payloads: Iterable[Any]) -> list[str]:
    return [json.loads(payload)["content"] for payload in payloads]


class BareSqlite(Peer):
    """A row for each message, in a table for each session."""

    used = "apsw: a table for each session, one INSERT and commit for an append, WAL"

    def open(self, place: str) -> None:
        import apsw  # noqa: PLC0415

        self._lock = threading.Lock()
        self._known: set[str] = set()
        self._db = apsw.Connection(place)
        self._db.set_busy_timeout(10_000)
        self._db.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL")
        self._db.execute("CREATE TABLE IF NOT EXISTS mark (id INTEGER PRIMARY KEY, at INTEGER)")

    def _table(self, session: str) -> str:
        if session not in self._known:
            self._db.execute(
                f'CREATE TABLE IF NOT EXISTS "{session}" (id INTEGER PRIMARY KEY, payload TEXT)'
            )
            self._known.add(session)
        return f'"{session}"'

    def append(self, session: str, messages: Sequence[Message]) -> None:
        with self._lock:
            insert = f"INSERT INTO {self._table(session)} (payload) VALUES (?)"
            if len(messages) == 1:
                self._db.execute(insert, (_written(messages[0]),))
            else:
                with self._db:
                    self._db.executemany(insert, [(_written(each),) for each in messages])

    def last(self, session: str, count: int) -> list[str]:
        query = f"SELECT payload FROM {self._table(session)} ORDER BY id DESC LIMIT ?"
        return _read(reversed([row[0] for row in self._db.execute(query, (count,))]))

    def load(self, session: str) -> list[str]:
        rows = self._db.execute(f"SELECT payload FROM {self._table(session)} ORDER BY id")
        return _read(row[0] for row in rows)

    def snapshot(self, session: str) -> int:
        """One row and its commit."""
        self._table(session)
        self._db.execute("INSERT INTO mark (at) VALUES (1)")
        return 1

    def rollback(self, session: str, snapshot: int) -> None:  # noqa: ARG002
        """One row and its commit."""
        self._db.execute("UPDATE mark SET at = at + 1 WHERE id = ?", (snapshot,))

    def close(self) -> None:
        self._db.close()


class BareRedis(Peer):
    """A list for each session."""

    used = "redis-py with hiredis: RPUSH for an append, LRANGE for a read"

    def open(self, place: str) -> None:
        import redis  # noqa: PLC0415

        self._redis = redis.Redis.from_url(place, protocol=2)
        self._redis.ping()

    def append(self, session: str, messages: Sequence[Message]) -> None:
        self._redis.rpush(session, *map(_written, messages))

    def last(self, session: str, count: int) -> list[str]:
        return _read(self._redis.lrange(session, -count, -1))

    def load(self, session: str) -> list[str]:
        return _read(self._redis.lrange(session, 0, -1))

    def snapshot(self, session: str) -> str:
        """One key."""
        self._redis.hset(f"{session}:mark", "at", "1")
        return "1"

    def rollback(self, session: str, snapshot: str) -> None:
        """One key."""
        self._redis.hset(f"{session}:mark", "at", snapshot)

    def close(self) -> None:
        self._redis.close()


class BarePostgres(Peer):
    """A row for each message, in a table for each session."""

    used = "psycopg: a table for each session, one INSERT with its commit, a connection per thread"

    def open(self, place: str) -> None:
        self._place = place
        self._own = threading.local()
        self._known: set[str] = set()
        self._db.execute("CREATE TABLE IF NOT EXISTS mark (id bigserial PRIMARY KEY, at bigint)")

    @property
    def _db(self) -> Any:
        import psycopg  # noqa: PLC0415

        if not hasattr(self._own, "db"):
            self._own.db = psycopg.connect(self._place, autocommit=True)
        return self._own.db

    def _table(self, session: str) -> str:
        if session not in self._known:
            # Two that create one table at once may both find that it is missing.
            self._db.execute(
                "DO $$ BEGIN PERFORM pg_advisory_xact_lock(1); CREATE TABLE IF NOT EXISTS "
                f'"{session}" (id bigserial PRIMARY KEY, payload text); END $$'
            )
            self._known.add(session)
        return f'"{session}"'

    def append(self, session: str, messages: Sequence[Message]) -> None:
        rows = ", ".join(["(%s)"] * len(messages))
        insert = f"INSERT INTO {self._table(session)} (payload) VALUES {rows}"
        self._db.execute(insert, [_written(each) for each in messages])

    def last(self, session: str, count: int) -> list[str]:
        query = f"SELECT payload FROM {self._table(session)} ORDER BY id DESC LIMIT %s"
        return _read(reversed([row[0] for row in self._db.execute(query, (count,))]))

    def load(self, session: str) -> list[str]:
        rows = self._db.execute(f"SELECT payload FROM {self._table(session)} ORDER BY id")
        return _read(row[0] for row in rows)

    def snapshot(self, session: str) -> int:
        """One row and its commit."""
        self._table(session)
        made = self._db.execute("INSERT INTO mark (at) VALUES (1) RETURNING id").fetchone()
        return int(made[0])

    def rollback(self, session: str, snapshot: int) -> None:  # noqa: ARG002
        """One row and its commit."""
        self._db.execute("UPDATE mark SET at = at + 1 WHERE id = %s", (snapshot,))

    def close(self) -> None:
        self._db.close()
