"""Databases of Agno."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from typing import Any

from agno.db.base import SessionType
from agno.db.redis import RedisDb
from agno.db.sqlite import SqliteDb
from agno.db.utils import build_single_run_row
from agno.models.message import Message as AgnoMessage
from agno.run.agent import RunOutput
from agno.run.base import RunStatus
from agno.session.agent import AgentSession

from benchmarks.peers.peer import Message, Peer


def _run(session: str, messages: Sequence[Message]) -> RunOutput:
    said = [AgnoMessage(role=each.role, content=each.text) for each in messages]
    return RunOutput(
        run_id=str(uuid.uuid4()),
        agent_id="a",
        session_id=session,
        messages=said,
        status=RunStatus.completed,
    )


def _row_like(row: dict[str, Any], message: Message, index: int) -> dict[str, Any]:
    """The row of another run: building each from objects would take minutes."""
    made = str(uuid.uuid4())
    said = {**row["run_data"]["messages"][0], "id": str(uuid.uuid4())}
    said |= {"role": message.role, "content": message.text}
    data = {**row["run_data"], "run_id": made, "messages": [said]}
    return {**row, "run_id": made, "run_index": index, "run_data": data}


class Databases(Peer):
    """A run for each append, as an agent saves one; the session's row is written once."""

    _db: Any

    def _opened(self, db: Any) -> None:
        self._db = db
        # An agent numbers a run by its place among those that it has loaded.
        self._runs: Counter[str] = Counter()

    def append(self, session: str, messages: Sequence[Message]) -> None:
        if not self._runs[session]:
            self._db.upsert_session(AgentSession(session_id=session, agent_id="a", session_data={}))
        run = _run(session, messages)
        self._db.upsert_run(run, session_id=session, run_index=self._runs[session])
        self._runs[session] += 1

    def _texts(self, session: str, **limit: int) -> list[str]:
        found = self._db.get_session(session, session_type=SessionType.AGENT, **limit)
        runs = found.runs if found else []
        return [str(said.content) for run in runs or [] for said in run.messages or []]

    def last(self, session: str, count: int) -> list[str]:
        return self._texts(session, runs_limit=count)

    def load(self, session: str) -> list[str]:
        return self._texts(session)


class Sqlite(Databases):
    """Through SQLAlchemy."""

    used = (
        "`SqliteDb(db_file=…)`: `upsert_run` for an append, `get_session(runs_limit=20)`; WAL; "
        "it caches the runs that it read"
    )
    prepared = "rows of runs as it writes them, into its table"

    def open(self, place: str) -> None:
        self._opened(SqliteDb(db_file=place))

    def fill(self, session: str, messages: Sequence[Message]) -> None:
        self.append(session, messages[:1])
        table = self._db._get_table("runs")  # noqa: SLF001
        run = _run(session, messages[:1])
        row = build_single_run_row(run=run, session_id=session, user_id=None, run_index=0)
        rows = [_row_like(row, each, index) for index, each in enumerate(messages[1:], start=1)]
        with self._db.Session() as sql, sql.begin():
            sql.execute(table.insert(), rows)
        self._runs[session] = len(messages)

    def close(self) -> None:
        self._db.close()


class Redis(Databases):
    """A key for each run and nine indexes of them."""

    used = "`RedisDb(db_url=…)`: `upsert_run` for an append, `get_session(runs_limit=20)`"
    prepared = "one `upsert_run` for each message"
    # A run of a thousand messages would be something else.
    batch = 1

    def open(self, place: str) -> None:
        self._opened(RedisDb(db_url=place))
