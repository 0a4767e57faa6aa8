"""How the contract kit records a store of indelible: each verb in the kit's terms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from indelible import AsyncMemoryStore, MemoryStore
from indelible.core.verbs import VERBS
from memory_contract.traces.format import CALL
from memory_contract.traces.recorder.call_records import Note
from memory_contract.traces.recorder.hasher import Hand
from memory_contract.traces.recorder.methods import (
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


def find_verbs(store: Any) -> Callable[[Hand], Verbs] | None:
    """Return the table of verbs of a store; None for another object."""
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
    # Such a read leaves out messages on purpose, so it is not checked for losses.
    if max_tokens is not None or on_corrupt != "raise":
        return Note(CALL, session_id)
    return Note("read", session_id, limit=last)


def _trim_last(
    session_id: str, *, keep_last: int | None = None, key: str | None = None, **_: Any
) -> Note:
    # After a trim by tokens or by position, any message may be missing.
    return Note("trim", session_id, keep=keep_last or 0, key=key).doubtful(keep_last is None)


def build_verbs(hand: Hand, ttl_s: Callable[[Any], float | None]) -> Verbs:
    """Build the table of verbs of `MemoryStore` and `AsyncMemoryStore`."""

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

    described: dict[str, Verb] = {
        # A default time to live would have to be noted with each of them.
        "add_message": Verb(add_message, placed, quick=hand.plain and ttl_s(None) is None),
        "add_messages": Verb(add_messages, placed, (1, "messages")),
        "save_context": Verb(save_context, placed),
        "get_history": Verb(_get_history, showed),
        "load_memory": Verb(lambda session_id: Note("read", session_id, turns=True), showed_turns),
        "trim": Verb(_trim_last),
        "hide": Verb(_hide),
        "clear": Verb(change("clear")),
        "clear_all": Verb(lambda: Note("clear", "", every=True)),
        "undo": Verb(change("undo")),
        "forget": Verb(change("clear")),
        "repair": Verb(_repair),
        "save_snapshot": Verb(change("snapshot"), froze),
        "rollback_to_snapshot": Verb(rollback),
        "fork": Verb(fork_at),
        "delete_snapshot": Verb(_delete_snapshot),
        "import_": Verb(lambda *_, **__: Note(CALL, "", every=True)),
        "vacuum": Verb(other_call),
    }
    return {
        name: replace(
            described.get(name) or Verb(other_call if verb.session_first else store_call),
            removes=verb.removes,
        )
        for name, verb in VERBS.items()
    }


def _hide(session_id: str, *_: Any, key: str | None = None, **__: Any) -> Note:
    # The trace has no positions, so any message may be missing.
    return Note("trim", session_id, keep=0, key=key).doubtful()


def _delete_snapshot(session_id: str, snapshot_id: str) -> Note:
    return Note(CALL, session_id, snapshot=snapshot_id)


def _repair(session_id: str | None = None, *, dry_run: bool = False) -> Note:
    if dry_run:
        return Note(CALL, session_id or "")
    return Note("trim", session_id or "", keep=0, every=session_id is None).doubtful()
