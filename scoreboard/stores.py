"""The stores of the scoreboard: one line each. A new one needs a factory and a line here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

Engine = Literal["memory", "files", "SQLite", "Redis", "PostgreSQL"]
# Where `make frameworks` puts the environments, and where `make test` puts ours.
BESIDE: Final = Path(".venv-frameworks")
OURS: Final = Path(".venv")


@dataclass(frozen=True, slots=True)
class Store:
    """A store, how the kit reaches it, and which packages it is made of."""

    framework: str
    name: str
    engine: Engine
    # As `memory-contract check` takes it.
    target: str
    packages: tuple[str, ...]
    # Which of the environments; None is our own.
    environment: str | None = None
    # Why it cannot be run beside the others, if it cannot.
    not_run: str = ""

    @property
    def remark(self) -> str:
        """What its own documentation says of it, or else a reader should know."""
        return REMARKS.get(self.id, "")

    @property
    def id(self) -> str:
        """What `--only` and the file of results call it: `langchain/file`."""
        if self.environment is None:
            return f"indelible/{self.engine.lower()}"
        return f"{self.environment}/{self.target.rpartition(':')[2]}"

    @property
    def only_search(self) -> bool:
        """Whether it keeps memories and no conversations: then it is asked about search alone."""
        return self.id in _MEMORIES

    @property
    def folder(self) -> Path:
        """Its environment."""
        return OURS if self.environment is None else BESIDE / self.environment

    @property
    def server(self) -> str | None:
        """The kind of server that it needs, in the words of `serving`."""
        return {"Redis": "redis", "PostgreSQL": "postgres"}.get(self.engine)

    def command(self, options: str) -> str:
        """How the kit is pointed at it by hand, from the root of this repository."""
        checking = f"{self.folder}/bin/memory-contract check {self.target} {options}"
        if self.server is None:
            return checking
        if self.environment is None:
            # No factory of ours knows the server, so the shell names it.
            told = checking.replace(self.target, f"$SCOREBOARD_{self.server.upper()}")
            checking = f"sh -c '{told}'"
        return f".venv/bin/python -m scoreboard.servers {checking}"


def _of(
    environment: str,
    framework: str,
    packages: str,
    *stores: tuple[str, Engine, str],
    module: str = "",
) -> list[Store]:
    """The stores of a framework: class, engine, and the kind of target with its factory.

    A factory alone is of the kind that the environment is called; `:name` is an adapter.
    """
    module = f"scoreboard.factories.{module or environment.replace('-', '_')}"
    found = []
    for name, engine, rest in stores:
        kind, colon, factory = rest.rpartition(":")
        prefix = kind or ("" if colon else environment)
        target = f"{prefix}:{module}:{factory}".lstrip(":")
        found.append(Store(framework, name, engine, target, tuple(packages.split()), environment))
    return found


_ONE_CONNECTION: Final = (
    "`from_conn_string` opens one connection, and no other when that one breaks; a pool of psycopg"
    " may be given instead"
)
REMARKS: Final = {
    "claude-agent/in_memory": "by its own words for testing and development; the ids that the SDK"
    " gives are UUIDs, and those that it fails with have a slash",
    "adk/in_memory": "by its own words for testing and development only",
    "llama-index/redis": "`delete_last_message` gives the stored JSON where the interface says a"
    " message; the kit takes it for that message",
    "langgraph/saver_postgres": _ONE_CONNECTION,
    "langgraph/store_postgres": _ONE_CONNECTION,
    "langgraph/saver_postgres_awaited": _ONE_CONNECTION,
    "langgraph/store_postgres_awaited": _ONE_CONNECTION,
    "crewai/lancedb": "a process that opened its folder before the first record was saved sees none"
    " of them; a scope shows what is in others whose names begin like its own",
    "langchain/postgres": "it is given a connection by its user, who has to give it another if that"
    " one breaks",
}
_MEMORIES: Final = ("llama-index/index", "mem0/qdrant", "crewai/lancedb")
_SEARCH: Final = "it needs the search module of Redis Stack, which this server does not have"

STORES: Final[list[Store]] = [
    Store("indelible", "indelible.open", "memory", "memory:", ("indelible",)),
    Store("indelible", "indelible.open", "SQLite", "sqlite:///board.db", ("indelible", "apsw")),
    Store("indelible", "indelible.open", "Redis", "redis:", ("indelible", "redis")),
    Store("indelible", "indelible.open", "PostgreSQL", "postgresql:", ("indelible", "psycopg")),
    *_of(
        "langchain",
        "LangChain",
        "langchain-core langchain-community",
        ("FileChatMessageHistory", "files", "file"),
        ("SQLChatMessageHistory", "SQLite", "sql"),
        ("SQLChatMessageHistory, async", "SQLite", "sql_awaited"),
        ("RedisChatMessageHistory (community)", "Redis", "redis"),
    ),
    *_of(
        "langchain",
        "LangChain",
        "langchain-core langchain-postgres",
        ("PostgresChatMessageHistory", "PostgreSQL", "postgres"),
    ),
    Store(
        "LangChain",
        "RedisChatMessageHistory (langchain-redis)",
        "Redis",
        "langchain:langchain_redis:search",
        ("langchain-core", "langchain-redis"),
        "langchain",
        _SEARCH,
    ),
    *_of(
        "langgraph",
        "LangGraph",
        "langgraph langgraph-checkpoint",
        ("InMemorySaver", "memory", "langgraph-saver:saver_in_memory"),
        ("InMemoryStore", "memory", "langgraph-store:store_in_memory"),
    ),
    *_of(
        "langgraph",
        "LangGraph",
        "langgraph langgraph-checkpoint-sqlite",
        ("SqliteSaver", "SQLite", "langgraph-saver:saver_sqlite"),
        ("AsyncSqliteSaver", "SQLite", "langgraph-saver:saver_sqlite_awaited"),
        ("SqliteStore", "SQLite", "langgraph-store:store_sqlite"),
        ("AsyncSqliteStore", "SQLite", "langgraph-store:store_sqlite_awaited"),
    ),
    *_of(
        "langgraph",
        "LangGraph",
        "langgraph langgraph-checkpoint-postgres",
        ("PostgresSaver", "PostgreSQL", "langgraph-saver:saver_postgres"),
        ("AsyncPostgresSaver", "PostgreSQL", "langgraph-saver:saver_postgres_awaited"),
        ("PostgresStore", "PostgreSQL", "langgraph-store:store_postgres"),
        ("AsyncPostgresStore", "PostgreSQL", "langgraph-store:store_postgres_awaited"),
    ),
    *_of(
        "langgraph",
        "LangGraph",
        "langgraph indelible",
        ('IndelibleSaver, on_conflict="refuse"', "SQLite", "langgraph-saver:saver_indelible"),
        ("IndelibleLangGraphStore", "SQLite", "langgraph-store:store_indelible"),
        (
            'IndelibleSaver, on_conflict="refuse"',
            "PostgreSQL",
            "langgraph-saver:saver_indelible_postgres",
        ),
        ("IndelibleLangGraphStore", "PostgreSQL", "langgraph-store:store_indelible_postgres"),
    ),
    Store(
        "LangGraph",
        "RedisSaver",
        "Redis",
        "langgraph-saver:langgraph_redis:search",
        ("langgraph", "langgraph-checkpoint-redis"),
        "langgraph",
        _SEARCH,
    ),
    *_of(
        "openai-agents",
        "OpenAI Agents",
        "openai-agents",
        ("SQLiteSession", "SQLite", "sqlite"),
        ("AsyncSQLiteSession", "SQLite", "sqlite_awaited"),
        ("AdvancedSQLiteSession", "SQLite", "sqlite_advanced"),
        ("SQLAlchemySession (aiosqlite)", "SQLite", "sqlalchemy_sqlite"),
        ("SQLAlchemySession (asyncpg)", "PostgreSQL", "sqlalchemy_postgres"),
        ("RedisSession", "Redis", "redis"),
    ),
    *_of(
        "claude-agent",
        "Claude Agent",
        "claude-agent-sdk",
        ("InMemorySessionStore", "memory", "in_memory"),
    ),
    *_of(
        "llama-index",
        "LlamaIndex",
        "llama-index-core",
        ("SimpleChatStore", "memory", "simple"),
    ),
    *_of(
        "llama-index",
        "LlamaIndex",
        "llama-index-core llama-index-storage-chat-store-sqlite",
        ("SQLiteChatStore", "SQLite", "sqlite"),
    ),
    *_of(
        "llama-index",
        "LlamaIndex",
        "llama-index-core llama-index-storage-chat-store-redis",
        ("RedisChatStore", "Redis", "redis"),
    ),
    *_of(
        "llama-index",
        "LlamaIndex",
        "llama-index-core llama-index-storage-chat-store-postgres",
        ("PostgresChatStore", "PostgreSQL", "postgres"),
    ),
    *_of(
        "adk",
        "Google ADK",
        "google-adk",
        ("InMemorySessionService", "memory", "in_memory"),
        ("SqliteSessionService", "SQLite", "sqlite"),
        ("DatabaseSessionService (aiosqlite)", "SQLite", "database_sqlite"),
        ("DatabaseSessionService (asyncpg)", "PostgreSQL", "database_postgres"),
    ),
    *_of("strands", "Strands", "strands-agents", ("FileSessionManager", "files", "file")),
    *_of(
        "agno",
        "Agno",
        "agno",
        ("InMemoryDb", "memory", "in_memory"),
        ("JsonDb", "files", "json"),
        ("SqliteDb", "SQLite", "sqlite"),
        ("RedisDb", "Redis", "redis"),
        ("PostgresDb", "PostgreSQL", "postgres"),
    ),
    *_of(
        "llama-index",
        "LlamaIndex",
        "llama-index-core",
        ("VectorStoreIndex", "memory", "llama-index-vectors:index"),
        module="llama_index_vectors",
    ),
    *_of("mem0", "mem0", "mem0ai", ("Memory, infer=False (Qdrant)", "files", ":qdrant")),
    *_of("crewai", "CrewAI", "crewai", ("LanceDBStorage", "files", "lancedb")),
]
