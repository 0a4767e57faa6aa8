"""The public verbs of a store, in one table.

Fault injection, telemetry, the recorder and the tests derive their lists from it. A test fails if a
public method of `MemoryStore` or of its async twin is not in it.
"""

from __future__ import annotations

from collections.abc import Mapping
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


class StoreVerb(NamedTuple):
    """One public method of a store. What it takes is said by its signature alone."""

    name: str
    # The operation that makes the verb's write durable, the last one if there are several; None if
    # the verb writes nothing. Injected faults strike at the first operation that commits any verb.
    commits: type[Operation[Any]] | None = None
    # Whether it returns entries that a session shows.
    reads: bool = False

    @property
    def writes(self) -> bool:
        """Whether it changes the store."""
        return self.commits is not None

    @property
    def appends(self) -> bool:
        """Whether it adds entries to a session."""
        return self.commits is Append

    @property
    def removes(self) -> bool:
        """Whether it can make visible entries invisible. A vacuum removes what no read shows."""
        return self.commits in (ChangeView, Rollback, Quarantine, Erase, EraseItem)


_ALL: Final = (
    StoreVerb("add_message", Append),
    StoreVerb("add_messages", Append),
    StoreVerb("add_entries", Append),
    StoreVerb("save_context", Append),
    StoreVerb("add_tool_call", Append),
    StoreVerb("add_tool_result", Append),
    StoreVerb("add_summary", Append),
    StoreVerb("get_history", reads=True),
    StoreVerb("load_memory", reads=True),
    StoreVerb("get_entries", reads=True),
    StoreVerb("get_tool_calls", reads=True),
    StoreVerb("get_summaries", reads=True),
    StoreVerb("search_summaries", reads=True),
    StoreVerb("search", reads=True),
    StoreVerb("remember", Append),
    StoreVerb("embed_missing", Append),
    StoreVerb("get_memory", reads=True),
    StoreVerb("list_memories", reads=True),
    StoreVerb("memory_history", reads=True),
    StoreVerb("retract", Append),
    StoreVerb("refresh_ttl", Append),
    StoreVerb("compact_memories", ChangeView),
    StoreVerb("erase_memory", EraseItem),
    StoreVerb("trim", ChangeView),
    StoreVerb("hide", ChangeView),
    StoreVerb("clear", ChangeView),
    StoreVerb("clear_all", ChangeView),
    StoreVerb("undo", ChangeView),
    StoreVerb("redo", ChangeView),
    StoreVerb("rollback_to_snapshot", Rollback),
    StoreVerb("save_snapshot", SaveSnapshot),
    StoreVerb("list_snapshots"),
    StoreVerb("diff_snapshots"),
    StoreVerb("delete_snapshot", DeleteSnapshot),
    StoreVerb("fork", ShowStage),
    StoreVerb("session"),
    StoreVerb("set_metadata", SetMetadata),
    StoreVerb("list_sessions"),
    StoreVerb("timeline"),
    StoreVerb("verify"),
    StoreVerb("audit_log"),
    StoreVerb("repair", Quarantine),
    StoreVerb("quarantined"),
    StoreVerb("export"),
    StoreVerb("import_", ShowStage),
    StoreVerb("vacuum", Reclaim),
    StoreVerb("reindex", IndexText),
    StoreVerb("forget", Erase),
    StoreVerb("claims"),
    StoreVerb("identity"),
    StoreVerb("risks"),
)

VERBS: Final[Mapping[str, StoreVerb]] = MappingProxyType({verb.name: verb for verb in _ALL})
# The operations that complete a write: when one of them has succeeded, its verb has.
COMMITTING_OPERATIONS: Final = (
    *dict.fromkeys(verb.commits for verb in _ALL if verb.commits is not None),
    Audited,
)
