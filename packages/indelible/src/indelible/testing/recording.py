"""How the contract kit records a store of indelible: what each verb means in the kit's terms."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from indelible import AsyncMemoryStore, MemoryStore
from memory_contract.recording.notes import Note
from memory_contract.recording.policy import Hand
from memory_contract.recording.verbs import (
    Verb,
    Verbs,
    change,
    fork_at,
    froze,
    noted,
    other_call,
    placed,
    rollback,
    showed,
    showed_turns,
    store_call,
)
from memory_contract.traces import CALL


def find_verbs(store: Any) -> Callable[[Hand], Verbs] | None:
    """The table of verbs of a store; None if the object is not one."""
    if not isinstance(store, MemoryStore | AsyncMemoryStore):
        return None
    return partial(build_verbs, ttl_s=store._settings.ttl_s)  # noqa: SLF001 (our own)


def _get_history(
    session_id: str,
    *,
    last: int | None = None,
    max_tokens: int | None = None,
    on_corrupt: str = "raise",
    **_: Any,
) -> Note:
    # What is left out on purpose is no loss: such a read is not judged.
    if max_tokens is not None or on_corrupt != "raise":
        return Note(CALL, session_id)
    return Note("read", session_id, limit=last)


def _trim_last(
    session_id: str, *, keep_last: int | None = None, key: str | None = None, **_: Any
) -> Note:
    # A trim by tokens or by position drops what it drops: any of it may go.
    return Note("trim", session_id, keep=keep_last or 0, key=key).doubtful(keep_last is None)


def build_verbs(hand: Hand, ttl_s: Callable[[Any], float | None]) -> Verbs:
    """The verbs of `MemoryStore` and its twin. Their default time to live is known."""

    def add_message(
        session_id: str,
        role: str,
        content: Any,
        *,
        key: str | None = None,
        ttl: Any = None,
        expected: Any = None,
        replay: Any = None,
        **fields: Any,
    ) -> Note:
        del expected, replay
        one = hand.noted({"role": role, "content": content, **fields})
        return Note("append", session_id, messages=(one,), key=key, ttl_s=ttl_s(ttl))

    def add_messages(
        session_id: str, messages: Any, *, key: str | None = None, ttl: Any = None, **_: Any
    ) -> Note:
        batch = noted(messages, hand)
        return Note(
            "append" if batch else CALL, session_id, messages=batch, key=key, ttl_s=ttl_s(ttl)
        )

    def save_context(
        session_id: str,
        human_msg: str,
        ai_msg: str,
        *,
        key: str | None = None,
        ttl: Any = None,
        **_: Any,
    ) -> Note:
        turn = [
            hand.noted({"role": "user", "content": human_msg}),
            hand.noted({"role": "assistant", "content": ai_msg}),
        ]
        return Note("append", session_id, messages=turn, key=key, ttl_s=ttl_s(ttl))

    appends = {
        # A default time to live would have to be noted with each of them.
        "add_message": Verb(add_message, placed, quick=hand.plain and ttl_s(None) is None),
        "add_messages": Verb(add_messages, placed, (1, "messages")),
        "save_context": Verb(save_context, placed),
    }
    reads = {
        "get_history": Verb(_get_history, showed),
        "load_memory": Verb(lambda session_id: Note("read", session_id, turns=True), showed_turns),
    }
    changes = {
        "trim": Verb(_trim_last, removes=True),
        "hide": Verb(_hide, removes=True),
        "clear": Verb(change("clear"), removes=True),
        "clear_all": Verb(lambda: Note("clear", "", every=True), removes=True),
        "undo": Verb(change("undo"), removes=True),
        "forget": Verb(change("clear"), removes=True),
        "repair": Verb(_repair, removes=True),
        "save_snapshot": Verb(change("snapshot"), froze),
        "rollback_to_snapshot": Verb(rollback, removes=True),
        "fork": Verb(fork_at),
        "delete_snapshot": Verb(_delete_snapshot),
        "import_": Verb(lambda *_, **__: Note(CALL, "", every=True)),
    }
    others = {name: Verb(other_call) for name in _OTHERS}
    others |= {name: Verb(store_call) for name in _ABOUT_ALL}
    return {**appends, **reads, **changes, **others}


_OTHERS: Final = (
    *("add_entries", "add_tool_call", "add_tool_result", "add_summary", "get_entries"),
    *("get_tool_calls", "get_summaries", "search_summaries", "list_snapshots", "diff_snapshots"),
    *("session", "set_metadata", "timeline", "verify", "vacuum", "quarantined"),
)
# Of the store, and of no session.
_ABOUT_ALL: Final = ("claims", "export", "identity", "list_sessions", "risks")


def _hide(session_id: str, *_: Any, key: str | None = None, **__: Any) -> Note:
    # Which entries stand at its positions is not in the trace: any may go.
    return Note("trim", session_id, keep=0, key=key).doubtful()


def _delete_snapshot(session_id: str, snapshot_id: str) -> Note:
    return Note(CALL, session_id, snapshot=snapshot_id)


def _repair(session_id: str | None = None, *, dry_run: bool = False) -> Note:
    if dry_run:
        return Note(CALL, session_id or "")
    return Note("trim", session_id or "", keep=0, every=session_id is None).doubtful()
