"""Goldfish that need a server: the oldest sin, where people think that the server prevents it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memory_contract.adapter import Adapter, Message
from memory_contract.goldfish.registry import Goldfish

_SIN = "It reads the whole list from the server, adds to it, and writes it back."


def written_back_on_redis(url: str) -> Goldfish:
    """GET, append, SET."""
    return Goldfish(
        name="written_back_on_redis",
        sin=_SIN,
        incident="key overwritten; langchain-ai/open-swe#2370",
        caught_by="append_storm",
        adapter=Adapter(open=OpenElsewhere(RedisList, url), name="written_back_on_redis"),
    )


def written_back_on_postgres(url: str) -> Goldfish:
    """SELECT, append, upsert: each a transaction of its own."""
    return Goldfish(
        name="written_back_on_postgres",
        sin=_SIN,
        incident="agno#7479; open-webui#28742",
        caught_by="append_storm",
        adapter=Adapter(open=OpenElsewhere(PostgresList, url), name="written_back_on_postgres"),
    )


@dataclass(frozen=True, slots=True)
class OpenElsewhere:
    """Opens a store on a server; the workspace's name keeps its data apart."""

    kind: Callable[[str, str], Any]
    url: str

    def __call__(self, workspace: Path) -> Any:
        """A handle."""
        return self.kind(self.url, workspace.name)


class RedisList:
    """A list of messages as one string."""

    def __init__(self, url: str, namespace: str) -> None:
        import redis  # noqa: PLC0415

        self._client = redis.Redis.from_url(url)
        self._namespace = namespace

    def _key(self, session: str) -> str:
        return f"goldfish:{self._namespace}:{session}"

    def append(self, session: str, messages: list[Message]) -> None:
        """Read, add, write."""
        known = self.read(session)
        self._client.set(self._key(session), json.dumps([*known, *messages]))

    def read(self, session: str) -> list[Message]:
        """All of them."""
        found: Any = self._client.get(self._key(session))
        return list(json.loads(found)) if found else []

    def close(self) -> None:
        """Let go of the server."""
        self._client.close()


class PostgresList:
    """A list of messages in one row."""

    def __init__(self, url: str, namespace: str) -> None:
        import psycopg  # noqa: PLC0415

        self._connection = psycopg.connect(url, autocommit=True)
        # Who comes first makes the table; a lock, so that this is not one more sin.
        self._connection.execute("SELECT pg_advisory_lock(4711)")
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS goldfish (session text PRIMARY KEY, messages text)"
        )
        self._connection.execute("SELECT pg_advisory_unlock(4711)")
        self._namespace = namespace

    def append(self, session: str, messages: list[Message]) -> None:
        """Read, add, write."""
        text = json.dumps([*self.read(session), *messages])
        self._connection.execute(
            "INSERT INTO goldfish VALUES (%s, %s)"
            " ON CONFLICT (session) DO UPDATE SET messages = excluded.messages",
            (f"{self._namespace}/{session}", text),
        )

    def read(self, session: str) -> list[Message]:
        """All of them."""
        row = self._connection.execute(
            "SELECT messages FROM goldfish WHERE session = %s", (f"{self._namespace}/{session}",)
        ).fetchone()
        return list(json.loads(row[0])) if row else []

    def close(self) -> None:
        """Let go of the server."""
        self._connection.close()
