"""The public verbs of a store, in one table.

Fault injection, the recorder, the command line and the tests derive their lists from it;
`tests/unit/test_verbs.py` checks it against the signatures of `MemoryStore` and its async twin.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from indelible.core.operations import (
    Append,
    Audited,
    ChangeView,
    DeleteSnapshot,
    Erase,
    EraseItem,
    IndexText,
    Quarantine,
    Reclaim,
    Rollback,
    SaveSnapshot,
    SetMetadata,
    ShowStage,
)
from indelible.core.plan import Operation


class VerbKind(StrEnum):
    """What a verb is for."""

    APPEND = "append"
    READ = "read"
    VIEW_CHANGE = "view change"
    SNAPSHOT = "snapshot"
    SESSION = "session"
    MAINTENANCE = "maintenance"
    ENGINE = "engine"


class StoreVerb(NamedTuple):
    """One public method of a store."""

    name: str
    kind: VerbKind
    # The operation that makes the verb's write durable, the last one if there are several; None if
    # the verb writes nothing. Injected faults strike at the first operation that commits any verb.
    commits: type[Operation[Any]] | None = None
    # Whether it takes `key`, so that a repeat has no further effect.
    keyed: bool = False
    # Whether it takes `expected`, what the session, or the memory, must still be.
    versioned: bool = False
    # Whether it can make visible entries invisible.
    removes: bool = False
    # Whether its first parameter is `session_id`.
    session_first: bool = True

    @property
    def writes(self) -> bool:
        """Whether it changes the store."""
        return self.commits is not None


def _append(name: str) -> StoreVerb:
    return StoreVerb(name, VerbKind.APPEND, Append, keyed=True, versioned=True)


def _view_change(name: str, commits: type[Operation[Any]] = ChangeView) -> StoreVerb:
    return StoreVerb(name, VerbKind.VIEW_CHANGE, commits, keyed=True, versioned=True, removes=True)


_ALL: Final = (
    _append("add_message"),
    _append("add_messages"),
    _append("add_entries"),
    _append("save_context"),
    _append("add_tool_call"),
    _append("add_tool_result"),
    _append("add_summary"),
    StoreVerb("get_history", VerbKind.READ),
    StoreVerb("load_memory", VerbKind.READ),
    StoreVerb("get_entries", VerbKind.READ),
    StoreVerb("get_tool_calls", VerbKind.READ),
    StoreVerb("get_summaries", VerbKind.READ),
    StoreVerb("search_summaries", VerbKind.READ),
    StoreVerb("search", VerbKind.READ, session_first=False),
    StoreVerb("remember", VerbKind.APPEND, Append, keyed=True, versioned=True, session_first=False),
    StoreVerb("embed_missing", VerbKind.APPEND, Append, session_first=False),
    StoreVerb("get_memory", VerbKind.READ, session_first=False),
    StoreVerb("list_memories", VerbKind.READ, session_first=False),
    StoreVerb("memory_history", VerbKind.READ, session_first=False),
    StoreVerb("retract", VerbKind.APPEND, Append, keyed=True, versioned=True, session_first=False),
    StoreVerb("refresh_ttl", VerbKind.APPEND, Append, session_first=False),
    StoreVerb(
        "compact_memories", VerbKind.VIEW_CHANGE, ChangeView, removes=True, session_first=False
    ),
    StoreVerb("erase_memory", VerbKind.MAINTENANCE, EraseItem, removes=True, session_first=False),
    _view_change("trim"),
    _view_change("hide"),
    _view_change("clear"),
    StoreVerb("clear_all", VerbKind.VIEW_CHANGE, ChangeView, removes=True, session_first=False),
    _view_change("undo"),
    _view_change("redo"),
    _view_change("rollback_to_snapshot", Rollback),
    StoreVerb("save_snapshot", VerbKind.SNAPSHOT, SaveSnapshot, versioned=True),
    StoreVerb("list_snapshots", VerbKind.SNAPSHOT),
    StoreVerb("diff_snapshots", VerbKind.SNAPSHOT),
    StoreVerb("delete_snapshot", VerbKind.SNAPSHOT, DeleteSnapshot),
    StoreVerb("fork", VerbKind.SESSION, ShowStage, versioned=True),
    StoreVerb("session", VerbKind.SESSION),
    StoreVerb("set_metadata", VerbKind.SESSION, SetMetadata, versioned=True),
    StoreVerb("list_sessions", VerbKind.SESSION, session_first=False),
    StoreVerb("timeline", VerbKind.MAINTENANCE),
    StoreVerb("verify", VerbKind.MAINTENANCE),
    StoreVerb("audit_log", VerbKind.MAINTENANCE),
    StoreVerb("repair", VerbKind.MAINTENANCE, Quarantine, removes=True),
    StoreVerb("quarantined", VerbKind.MAINTENANCE),
    StoreVerb("export", VerbKind.MAINTENANCE, session_first=False),
    StoreVerb("import_", VerbKind.MAINTENANCE, ShowStage, session_first=False),
    # A vacuum removes only what no read shows.
    StoreVerb("vacuum", VerbKind.MAINTENANCE, Reclaim, session_first=False),
    StoreVerb("reindex", VerbKind.MAINTENANCE, IndexText, session_first=False),
    StoreVerb("forget", VerbKind.MAINTENANCE, Erase, versioned=True, removes=True),
    StoreVerb("claims", VerbKind.ENGINE, session_first=False),
    StoreVerb("identity", VerbKind.ENGINE, session_first=False),
    StoreVerb("risks", VerbKind.ENGINE, session_first=False),
)

VERBS: Final[Mapping[str, StoreVerb]] = MappingProxyType({verb.name: verb for verb in _ALL})
# The operations that complete a write: when one of them has succeeded, its verb has.
COMMITTING_OPERATIONS: Final = (
    *dict.fromkeys(verb.commits for verb in _ALL if verb.commits is not None),
    Audited,
)
