"""Goldfish on Redis and PostgreSQL: stores that are correct until the network or the server fails.

Each is one of the correct stores below with one thing changed. At the end stand two that lose
entries without any fault.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from memory_contract.adapter import Adapter, Message, Refused
from memory_contract.goldfish.registry import Goldfish

# How long the right stores wait for an answer, and how long no call of theirs takes longer than.
TIMEOUT_S: Final = 0.5
PATIENCE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class OpenOn:
    """Opens a store on a server, or on the one that stands in for it."""

    # Worker processes import this module before they fork, and nothing else of `tests`.
    modules: ClassVar = (__name__,)

    kind: Callable[[str, str], Any]
    url: str

    def __call__(self, workspace: Path, *, server: str | None = None) -> Any:
        """A handle; the workspace's name keeps its data apart."""
        return self.kind(server or self.url, workspace.name)


def adapter_on(kind: Any, url: str) -> Adapter:
    """The adapter of a store class of this module."""
    opener = OpenOn(kind, url)
    return Adapter(
        open=None if kind.awaited else opener,
        open_async=opener if kind.awaited else None,
        name=kind.__name__,
        server=url,
        capabilities=getattr(kind, "capabilities", ()),
        durability="process",
        patience_s=kind.patience_s,
    )


class RedisLog:
    """A list on Redis; one command appends a batch. What was sent and not answered is an error."""

    awaited: ClassVar = False
    patience_s: ClassVar[float | None] = PATIENCE_S
    timeout_s: ClassVar[float | None] = TIMEOUT_S
    introduces: ClassVar[dict[str, Any]] = {}

    def __init__(self, url: str, namespace: str) -> None:
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        retry = Retry(NoBackoff(), 0)
        self._errors = redis.exceptions
        self._client = redis.Redis.from_url(
            url,
            retry=retry,
            socket_timeout=self.timeout_s,
            socket_connect_timeout=TIMEOUT_S,
            **self.introduces,
        )
        self._namespace = namespace

    def _key(self, session: str) -> str:
        return f"goldfish:{self._namespace}:{session}"

    def _push(self, session: str, messages: list[Message]) -> None:
        self._client.rpush(self._key(session), *map(json.dumps, messages))

    def append(self, session: str, messages: list[Message]) -> None:
        """Push all of them at once."""
        self._push(session, messages)

    def read(self, session: str) -> list[Message]:
        """All of them."""
        found: Any = self._client.lrange(self._key(session), 0, -1)
        return [json.loads(each) for each in found]

    def close(self) -> None:
        """Let go of the server."""
        self._client.close()


class PushesOneByOne(RedisLog):
    """It sends a batch message by message, in one packet and without a transaction."""

    def append(self, session: str, messages: list[Message]) -> None:
        """Push each of them."""
        with self._client.pipeline(transaction=False) as pipeline:
            for message in messages:
                pipeline.rpush(self._key(session), json.dumps(message))
            pipeline.execute()


class RetriesWithoutKey(RedisLog):
    """It sends an append again when the connection was lost, and does not ask whether it landed."""

    def append(self, session: str, messages: list[Message]) -> None:
        """Push; if in doubt, again."""
        try:
            self._push(session, messages)
        except self._errors.ConnectionError:
            self._push(session, messages)


class SendsAgainWhenLate(RedisLog):
    """It sends an append again when the answer is late, although the first is still on its way."""

    # A new connection does not introduce itself: a stopped server gets the second append, too.
    introduces: ClassVar = {"protocol": 2, "driver_info": None}

    def append(self, session: str, messages: list[Message]) -> None:
        """Push; after a while, again."""
        try:
            self._push(session, messages)
        except self._errors.TimeoutError:
            self._push(session, messages)


class SaysFailedAlthoughApplied(RedisLog):
    """It says that nothing was written whenever the connection was lost."""

    def append(self, session: str, messages: list[Message]) -> None:
        """Push; an error is a refusal."""
        try:
            self._push(session, messages)
        except self._errors.ConnectionError as error:
            raise Refused("not written") from error


class SwallowsOom(RedisLog):
    """It takes a full server for no reason to bother anybody."""

    def append(self, session: str, messages: list[Message]) -> None:
        """Push, if there is room."""
        try:
            self._push(session, messages)
        except self._errors.OutOfMemoryError:
            return


class SwallowsRefusals(RedisLog):
    """It logs that its server became a replica, and goes on."""

    def append(self, session: str, messages: list[Message]) -> None:
        """Push, if the server lets us."""
        try:
            self._push(session, messages)
        except self._errors.ReadOnlyError:
            return


class SwallowsAFullDisk(RedisLog):
    """It takes what a server with a full disk says for a warning, and goes on."""

    def append(self, session: str, messages: list[Message]) -> None:
        """Push; the words of a server whose disk is full are passed over."""
        try:
            self._push(session, messages)
        except self._errors.ResponseError as error:
            if "No space left on device" not in str(error):
                raise


class WaitsForEver(RedisLog):
    """It says that no call takes longer than two seconds, and gives the socket no timeout."""

    patience_s = 2.0
    timeout_s = None


class NeverLooksAgain(RedisLog):
    """It remembers that its server was away, and does not look whether it is back."""

    def append(self, session: str, messages: list[Message]) -> None:
        """Push, unless that failed before."""
        if getattr(self, "_away", False):
            raise ConnectionError("the server is away")
        try:
            self._push(session, messages)
        except self._errors.ConnectionError:
            self._away = True
            raise


class AcknowledgesUnheard(RedisLog):
    """It says that an append is done when it was sent, and hears later whether it was."""

    def __init__(self, url: str, namespace: str) -> None:
        super().__init__(url, namespace)
        self._sent: Any = None

    def append(self, session: str, messages: list[Message]) -> None:
        """Send, and hear of the one before."""
        self._hear()
        connection: Any = self._client.connection_pool.get_connection()
        connection.send_command("RPUSH", self._key(session), *map(json.dumps, messages))
        self._sent = connection

    def read(self, session: str) -> list[Message]:
        """All of them."""
        self._hear()
        return super().read(session)

    def _hear(self) -> None:
        sent, self._sent = self._sent, None
        if sent is None:
            return
        try:
            sent.read_response()
        except self._errors.RedisError:
            sent.disconnect()
        finally:
            self._client.connection_pool.release(sent)

    def close(self) -> None:
        """Hear of the last one."""
        self._hear()
        super().close()


class ShowsWhatWasLost(RedisLog):
    """It shows what it remembers when the server has nothing."""

    def __init__(self, url: str, namespace: str) -> None:
        super().__init__(url, namespace)
        self._remembered: dict[str, list[Message]] = {}

    def read(self, session: str) -> list[Message]:
        """What is there, or was."""
        found = super().read(session)
        if found:
            self._remembered[session] = found
        return found or self._remembered.get(session, [])


class RedisCheckpoints(RedisLog):
    """Keeps what tasks wrote in a hash for each state, each text under its task and number."""

    capabilities: ClassVar = ("pending", "prune")

    def _writes(self, session: str) -> str:
        return f"{self._key(session)}:writes:{self._client.llen(self._key(session))}"

    def put_writes(self, session: str, task: str, texts: list[str]) -> None:
        """Store them in one transaction; those that are there already stay."""
        key = self._writes(session)
        with self._client.pipeline(transaction=True) as pipeline:
            for number, text in enumerate(texts):
                pipeline.hsetnx(key, json.dumps([task, number]), text)
            pipeline.execute()

    def pending(self, session: str) -> list[tuple[str, str]]:
        """Those of the newest state."""
        found: Any = self._client.hgetall(self._writes(session))
        written = sorted((json.loads(name), text.decode()) for name, text in found.items())
        return [(task, text) for (task, _), text in written]

    def prune(self, session: str) -> None:
        """Delete those of older states."""
        states: Any = self._client.llen(self._key(session))
        self._client.delete(*(f"{self._key(session)}:writes:{n}" for n in range(states)))


class WritesAgainInDoubt(RedisCheckpoints):
    """It looks whether a task has written, but not when it sends the writes again by itself."""

    def put_writes(self, session: str, task: str, texts: list[str]) -> None:
        """Add them to a list; if in doubt, again."""
        key = self._writes(session) + ":list"
        if any(each == task for each, _ in self.pending(session)):
            return
        lines = [json.dumps([task, text]) for text in texts]
        try:
            self._client.rpush(key, *lines)
        except self._errors.ConnectionError:
            self._client.rpush(key, *lines)

    def pending(self, session: str) -> list[tuple[str, str]]:
        """Those of the newest state."""
        found: Any = self._client.lrange(self._writes(session) + ":list", 0, -1)
        return [(task, text) for task, text in map(json.loads, found)]


class RedisAudit(RedisLog):
    """Pushes a line with each append, in one transaction."""

    capabilities: ClassVar = ("audit",)

    def _push_line(self, client: Any, session: str) -> None:
        client.rpush(f"{self._key(session)}:audit", "an append")

    def append(self, session: str, messages: list[Message]) -> None:
        """Push both."""
        with self._client.pipeline(transaction=True) as pipeline:
            pipeline.rpush(self._key(session), *map(json.dumps, messages))
            self._push_line(pipeline, session)
            pipeline.execute()

    def start_audit(self) -> None:
        """There are lines anyway."""

    def audit(self, session: str) -> list[dict[str, str]]:
        """The lines; that they are no chain is another sin."""
        found: Any = self._client.lrange(f"{self._key(session)}:audit", 0, -1)
        return [{"hash": f"{number} {line}"} for number, line in enumerate(found)]

    def verify_audit(self, session: str, head: str | None = None, lines: Any = None) -> bool:
        """Whether the line that was kept is there."""
        return head is None or {"hash": head} in (lines or self.audit(session))


class LineBeforeTheChange(RedisAudit):
    """It pushes a line, and then does what the line says."""

    def append(self, session: str, messages: list[Message]) -> None:
        """Push the line, then the messages."""
        self._push_line(self._client, session)
        self._push(session, messages)


class AsyncRedisLog:
    """The same list, awaited, on one connection that is thrown away when a call was interrupted."""

    awaited: ClassVar = True
    patience_s: ClassVar[float | None] = None

    def __init__(self, url: str, namespace: str) -> None:
        host, _, port = url.partition("://")[2].partition("/")[0].partition(":")
        self._place = host, int(port)
        self._namespace = namespace
        self._lock = asyncio.Lock()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def append(self, session: str, messages: list[Message]) -> None:
        """Push all of them at once."""
        await self._call("RPUSH", self._key(session), *map(json.dumps, messages))

    async def read(self, session: str) -> list[Message]:
        """All of them."""
        found = await self._call("LRANGE", self._key(session), "0", "-1")
        return [json.loads(each) for each in found]

    async def close(self) -> None:
        """Let go of the server."""
        self._hang_up()

    def _key(self, session: str) -> str:
        return f"goldfish:{self._namespace}:{session}"

    async def _call(self, *words: str) -> Any:
        async with self._lock:
            try:
                return await self._exchange(words)
            except BaseException:
                self._hang_up()
                raise

    async def _exchange(self, words: Sequence[str]) -> Any:
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self._place)
        reader, writer = self._streams
        packed = [each.encode() for each in words]
        sent = b"".join(b"$%d\r\n%b\r\n" % (len(each), each) for each in packed)
        writer.write(b"*%d\r\n" % len(packed) + sent)
        await writer.drain()
        return await _reply(reader)

    def _hang_up(self) -> None:
        streams, self._streams = self._streams, None
        if streams is not None:
            streams[1].close()


async def _reply(reader: asyncio.StreamReader) -> Any:
    line = await reader.readline()
    kind, rest = line[:1], line[1:].strip()
    if kind == b"*":
        return [await _reply(reader) for _ in range(int(rest))]
    if kind == b"$":
        return (await reader.readexactly(int(rest) + 2))[:-2]
    if kind == b":":
        return int(rest)
    raise ConnectionError(f"no answer: {line!r}")


class ConnectionReturnedDirty(AsyncRedisLog):
    """It keeps the connection of a cancelled call, with the reply that nobody read."""

    async def _call(self, *words: str) -> Any:
        async with self._lock:
            return await self._exchange(words)


class LockKeptAfterCancel(AsyncRedisLog):
    """It gives its lock back after the call, but not after a call that was cancelled."""

    async def _call(self, *words: str) -> Any:
        await self._lock.acquire()
        try:
            answer = await self._exchange(words)
        except Exception:
            self._hang_up()
            self._lock.release()
            raise
        self._lock.release()
        return answer


class PostgresLog:
    """A row for each message, a transaction for each batch; a broken connection is replaced."""

    awaited: ClassVar = False
    # The driver has no deadline for a statement.
    patience_s: ClassVar[float | None] = None
    table: ClassVar = "CREATE TABLE"

    def __init__(self, url: str, namespace: str) -> None:
        import psycopg

        self._psycopg = psycopg
        self._url = url
        self._namespace = namespace
        self._name = f"goldfish_{type(self).__name__.lower()}"
        self._connection: Any = None
        connection = self._connected()
        connection.execute("SELECT pg_advisory_xact_lock(4712)")
        connection.execute(
            f"{self.table} IF NOT EXISTS {self._name}"
            " (n bigserial PRIMARY KEY, session text, message text)"
        )
        connection.commit()

    def _connected(self) -> Any:
        if self._connection is None or self._connection.closed:
            self._connection = self._psycopg.connect(self._url, connect_timeout=20)
        return self._connection

    def append(self, session: str, messages: list[Message]) -> None:
        """Insert all of them, or none."""
        connection = self._connected()
        try:
            # Who comes later has later numbers.
            connection.execute("SELECT pg_advisory_xact_lock(4713)")
            for message in messages:
                self._insert(connection, session, message)
            connection.commit()
        except BaseException:
            connection.close()
            raise

    def _insert(self, connection: Any, session: str, message: Message) -> None:
        connection.execute(
            f"INSERT INTO {self._name} (session, message) VALUES (%s, %s)",
            (f"{self._namespace}/{session}", json.dumps(message)),
        )

    def read(self, session: str) -> list[Message]:
        """All of them."""
        connection = self._connected()
        try:
            rows = connection.execute(
                f"SELECT message FROM {self._name} WHERE session = %s ORDER BY n",
                (f"{self._namespace}/{session}",),
            ).fetchall()
            connection.commit()
        except BaseException:
            connection.close()
            raise
        return [json.loads(row[0]) for row in rows]

    def close(self) -> None:
        """Let go of the server."""
        if self._connection is not None:
            self._connection.close()


class PostgresCheckpoints(PostgresLog):
    """A row for each text that a task wrote, with the number of messages of its state."""

    capabilities: ClassVar = ("pending", "prune")

    def __init__(self, url: str, namespace: str) -> None:
        super().__init__(url, namespace)
        self._run(
            f"CREATE TABLE IF NOT EXISTS {self._name}_write"
            " (session text, state int, task text, n int, message text,"
            " PRIMARY KEY (session, state, task, n))",
            lock=True,
        )

    def _run(self, *statements: str, lock: bool = False, **values: Any) -> list[Any]:
        """Statements in one transaction; the rows of the last."""
        connection = self._connected()
        try:
            if lock:
                connection.execute("SELECT pg_advisory_xact_lock(4714)")
            for statement in statements:
                cursor = connection.execute(statement, values)
            rows = cursor.fetchall() if cursor.description else []
            connection.commit()
        except BaseException:
            connection.close()
            raise
        return list(rows)

    def _count(self) -> str:
        return f"(SELECT count(*) FROM {self._name} WHERE session = %(session)s)"

    def put_writes(self, session: str, task: str, texts: list[str]) -> None:
        """Insert all of them; those that are there already stay."""
        self._run(
            f"INSERT INTO {self._name}_write"
            f" SELECT %(session)s, {self._count()}, %(task)s, n, message"
            " FROM unnest(%(texts)s::text[]) WITH ORDINALITY AS each(message, n)"
            " ON CONFLICT DO NOTHING",
            session=f"{self._namespace}/{session}",
            task=task,
            texts=texts,
        )

    def pending(self, session: str) -> list[tuple[str, str]]:
        """Those of the newest state."""
        return self._run(
            f"SELECT task, message FROM {self._name}_write WHERE session = %(session)s"
            f" AND state = {self._count()} ORDER BY task, n",
            session=f"{self._namespace}/{session}",
        )

    def prune(self, session: str) -> None:
        """Delete those of older states."""
        self._run(
            f"DELETE FROM {self._name}_write WHERE session = %(session)s"
            f" AND state < {self._count()}",
            session=f"{self._namespace}/{session}",
        )


class PrunesInTwoTransactions(PostgresCheckpoints):
    """It deletes a session, commits, and then inserts what it showed."""

    def prune(self, session: str) -> None:
        """Write the session anew."""
        shown = self.read(session)
        name = f"{self._namespace}/{session}"
        self._run(f"DELETE FROM {self._name} WHERE session = %(session)s", session=name)
        self.append(session, shown)


class RetriesTheTransaction(PostgresLog):
    """It runs a transaction again when its connection was lost, also when that was at its end."""

    def append(self, session: str, messages: list[Message]) -> None:
        """Insert; if in doubt, again."""
        try:
            super().append(session, messages)
        except self._psycopg.OperationalError:
            super().append(session, messages)


class RetriesTheStatementAlone(PostgresLog):
    """It repeats the statement that could not be serialized, and not the transaction before it."""

    def _insert(self, connection: Any, session: str, message: Message) -> None:
        try:
            super()._insert(connection, session, message)
        except self._psycopg.errors.SerializationFailure:
            connection.rollback()
            super()._insert(connection, session, message)


class SwallowsAFullTable(PostgresLog):
    """It logs that a table cannot grow, and goes on."""

    def append(self, session: str, messages: list[Message]) -> None:
        """Insert, if there is room."""
        try:
            super().append(session, messages)
        except self._psycopg.errors.DiskFull as error:
            if "could not extend" not in str(error):
                raise


class StaysWithTheOldServer(PostgresLog):
    """It remembers where its server really was, and looks for it there after a failover, too."""

    def _connected(self) -> Any:
        if self._connection is None:
            connection = super()._connected()
            port = connection.execute("SELECT inet_server_port()").fetchone()[0]
            connection.commit()
            place, database = self._url.rpartition(":")[0], self._url.rpartition("/")[2]
            self._url = f"{place}:{port}/{database}"
        return super()._connected()


class UnloggedTable(PostgresLog):
    """It keeps messages in a table that the server does not log, and says that they are safe."""

    table = "CREATE UNLOGGED TABLE"


# Who must be caught by which case, and where that happened.
_ON_REDIS: Final = (
    (RetriesWithoutKey, "reply_lost", "redis-py#977; redis-py's own retry"),
    (SaysFailedAlthoughApplied, "error_but_applied_is_marked", "openai-agents RedisSession"),
    (SwallowsOom, "oom_reply", "a class of its own; toxiproxy#50 asks for it"),
    (SwallowsRefusals, "injected_replies", "a class of its own: a failover in the middle"),
    (WaitsForEver, "slow_server_deadline", "redis-py before 8, without socket_timeout"),
    (NeverLooksAgain, "refused_connection", "a class of its own: a flag that nobody resets"),
    (AcknowledgesUnheard, "connection_flap", "a class of its own: fire and forget"),
    (PushesOneByOne, "connection_flap", "a class of its own: a pipeline taken for a transaction"),
    (SendsAgainWhenLate, "server_frozen", "redis-py#261"),
    (ShowsWhatWasLost, "server_emptied", "a class of its own: a cache as a second truth"),
    (SwallowsAFullDisk, "server_disk_full", "a class of its own: an error taken for a warning"),
    (ConnectionReturnedDirty, "cancel_everywhere", "redis-py#2624; redis-py#2665"),
    (LockKeptAfterCancel, "cancel_everywhere", "openai-agents-python#4202"),
    (LineBeforeTheChange, "audit_agrees_after_a_lost_reply", "a class of its own: two writes"),
    (WritesAgainInDoubt, "lost_reply_in_pending_writes", "a class of its own: half a guard"),
)
_ON_POSTGRES: Final = (
    (RetriesTheTransaction, "reply_lost", "a class of its own: a decorator that runs it again"),
    (RetriesTheStatementAlone, "injected_replies", "a class of its own: half a retry"),
    (
        StaysWithTheOldServer,
        "server_failover",
        "a class of its own: an address that was resolved once",
    ),
    (SwallowsAFullTable, "server_disk_full", "a class of its own: an error that is logged"),
    (UnloggedTable, "server_restart", "a class of its own: unlogged tables"),
    (PrunesInTwoTransactions, "lost_reply_in_prune", "a class of its own: delete, then insert"),
)
CHECKPOINTS: Final = (RedisCheckpoints, PostgresCheckpoints)
RIGHT_ON_REDIS: Final = (RedisLog, AsyncRedisLog)
RIGHT_ON_POSTGRES: Final = (PostgresLog,)


def goldfish_on(url: str) -> dict[str, Goldfish]:
    """The goldfish that live on a server of this kind."""
    kinds = _ON_REDIS if url.startswith("redis") else _ON_POSTGRES
    return {
        kind.__name__: Goldfish(
            name=kind.__name__,
            sin=(kind.__doc__ or "").strip(),
            incident=incident,
            caught_by=case,
            adapter=adapter_on(kind, url),
        )
        for kind, case, incident in kinds
    }


class RedisList:
    """A list of messages as one string."""

    def __init__(self, url: str, namespace: str) -> None:
        import redis

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
        import psycopg

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


_SIN = "It reads the whole list from the server, adds to it, and writes it back."


def written_back_on_redis(url: str) -> Goldfish:
    """GET, append, SET."""
    return Goldfish(
        name="written_back_on_redis",
        sin=_SIN,
        incident="key overwritten; langchain-ai/open-swe#2370",
        caught_by="append_storm",
        adapter=Adapter(open=OpenOn(RedisList, url), name="written_back_on_redis"),
    )


def written_back_on_postgres(url: str) -> Goldfish:
    """SELECT, append, upsert: each a transaction of its own."""
    return Goldfish(
        name="written_back_on_postgres",
        sin=_SIN,
        incident="agno#7479; open-webui#28742",
        caught_by="append_storm",
        adapter=Adapter(open=OpenOn(PostgresList, url), name="written_back_on_postgres"),
    )
