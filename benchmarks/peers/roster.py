"""Who is measured: the table of all peers. A peer is added here and in a module of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SQLITE: Final = "SQLite"
REDIS: Final = "Redis"
POSTGRES: Final = "PostgreSQL"
ENGINES: Final = (SQLITE, REDIS, POSTGRES)
# What the ratios are ratios to, and who is compared with the best of all others.
BARE: Final = "bare driver"
OURS: Final = ("indelible", "indelible, awaited")


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """A peer on an engine, and where to find it."""

    engine: str
    name: str
    # A folder of .venv-frameworks, or nothing for our own environment.
    environment: str
    # module:class in benchmarks.peers.
    code: str
    # Distributions whose versions are told.
    packages: tuple[str, ...]

    @property
    def label(self) -> str:
        """Engine and name: who it is among all."""
        return f"{self.engine} · {self.name}"


def _on(engine: str, environment: str, packages: str, **codes: str) -> list[Entry]:
    return [
        Entry(
            engine=engine,
            name=name.replace("_", " "),
            environment=environment,
            code=code,
            packages=tuple(packages.split()),
        )
        for name, code in codes.items()
    ]


def _ours(engine: str, bare: str, driver: str) -> list[Entry]:
    return [
        *_on(engine, "", driver, **{BARE: f"bare:{bare}"}),
        *_on(engine, "", "indelible", **{OURS[0]: "ours:Blocking", OURS[1]: "ours:Awaited"}),
    ]


AGENTS, CHAIN, GRAPH, LLAMA = "openai-agents", "langchain", "langgraph", "llama-index"

ROSTER: Final = (
    *_ours(SQLITE, "BareSqlite", "apsw"),
    *_on(
        SQLITE, AGENTS, "openai-agents",
        OpenAI_Agents_SQLiteSession="openai_agents:Sqlite",
        OpenAI_Agents_AdvancedSQLiteSession="openai_agents:Advanced",
        OpenAI_Agents_SQLAlchemySession="openai_agents:Sql",
    ),
    *_on(
        SQLITE, CHAIN, "langchain-community langchain-core",
        LangChain_SQLChatMessageHistory="langchain:Sqlite",
    ),
    *_on(
        SQLITE, GRAPH, "langgraph langgraph-checkpoint-sqlite",
        LangGraph_SqliteSaver="langgraph:SqliteSavers",
        LangGraph_SqliteStore="langgraph:SqliteStores",
        LangGraph_AsyncSqliteStore="langgraph:AwaitedSqliteStores",
    ),
    *_on(
        SQLITE, LLAMA, "llama-index-core llama-index-storage-chat-store-sqlite",
        LlamaIndex_SQLiteChatStore="llama_index:Sqlite",
    ),
    *_on(
        SQLITE, "adk", "google-adk",
        ADK_SqliteSessionService="adk:Sqlite", ADK_DatabaseSessionService="adk:Database",
    ),
    *_on(SQLITE, "agno", "agno", Agno_SqliteDb="agno:Sqlite"),
    *_on(
        SQLITE, "strands", "strands-agents",
        Strands_FileSessionManager="strands:Files",
        Strands_SnapshotSessionManager="strands:Snapshots",
    ),
    *_on(SQLITE, "mem0", "mem0ai", mem0_SQLiteManager="mem0:Table"),
    *_ours(REDIS, "BareRedis", "redis"),
    *_on(REDIS, AGENTS, "openai-agents", OpenAI_Agents_RedisSession="openai_agents:Redis"),
    *_on(
        REDIS, CHAIN, "langchain-community langchain-core",
        LangChain_RedisChatMessageHistory="langchain:Redis",
    ),
    *_on(
        REDIS, LLAMA, "llama-index-core llama-index-storage-chat-store-redis",
        LlamaIndex_RedisChatStore="llama_index:Redis",
    ),
    *_on(REDIS, "agno", "agno", Agno_RedisDb="agno:Redis"),
    *_ours(POSTGRES, "BarePostgres", "psycopg"),
    *_on(POSTGRES, AGENTS, "openai-agents", OpenAI_Agents_SQLAlchemySession="openai_agents:Sql"),
    *_on(
        POSTGRES, CHAIN, "langchain-postgres langchain-core",
        LangChain_PostgresChatMessageHistory="langchain:Postgres",
    ),
    *_on(
        POSTGRES, GRAPH, "langgraph langgraph-checkpoint-postgres",
        LangGraph_PostgresSaver="langgraph:PostgresSavers",
        LangGraph_PostgresStore="langgraph:PostgresStores",
        LangGraph_AsyncPostgresStore="langgraph:AwaitedPostgresStores",
    ),
    *_on(
        POSTGRES, LLAMA, "llama-index-core llama-index-storage-chat-store-postgres",
        LlamaIndex_PostgresChatStore="llama_index:Postgres",
    ),
    *_on(POSTGRES, "adk", "google-adk", ADK_DatabaseSessionService="adk:Database"),
)  # fmt: skip
