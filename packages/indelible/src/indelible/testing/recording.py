"""How the contract kit records a store of indelible: each verb in the kit's terms."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from indelible import AsyncMemoryStore, ChatMessage, MemoryStore
from indelible.core.operations import Erase, ShowStage
from indelible.core.verbs import VERBS, StoreVerb
from memory_contract.traces.format import CALL
from memory_contract.traces.recorder.call_records import CallRecord
from memory_contract.traces.recorder.hasher import Hasher
from memory_contract.traces.recorder.methods import (
    MethodSpec,
    MethodSpecs,
    describe_append,
    describe_change,
    describe_fork,
    describe_rollback,
    describe_session_call,
    describe_store_call,
    hash_messages,
    hash_turn,
    record_messages,
    record_position,
    record_snapshot_id,
    record_turns,
)


def find_verbs(store: Any) -> Callable[[Hasher], MethodSpecs] | None:
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
) -> CallRecord:
    # Such a read leaves out messages on purpose, so it is not checked for losses.
    if max_tokens is not None or on_corrupt != "raise":
        return CallRecord(CALL, session_id)
    return CallRecord("read", session_id, limit=last)


def _trim_last(
    session_id: str,
    *,
    keep_last: int | None = None,
    align: str | None = "user",
    key: str | None = None,
    **_: Any,
) -> CallRecord:
    # After a trim by tokens or by position, or one that keeps whole turns, the trace cannot say
    # which messages are hidden.
    exact = keep_last is not None and align is None
    return CallRecord("trim", session_id, keep=keep_last or 0, key=key, unsure=not exact)


def _unless_dry_run(describe: Callable[..., CallRecord]) -> Callable[..., CallRecord]:
    """Describe a call with `dry_run` as one without effect."""

    def describe_call(*args: Any, dry_run: bool = False, **options: Any) -> CallRecord:
        return describe_session_call(*args) if dry_run else describe(*args, **options)

    return describe_call


def build_verbs(hasher: Hasher, ttl_s: Callable[[Any], float | None]) -> MethodSpecs:
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
    ) -> CallRecord:
        del expected, replay
        one = hasher.hash_message({"role": role, "content": content, **fields})
        return describe_append(session_id, [one], key=key, ttl_s=ttl_s(ttl))

    def add_messages(
        session_id: str, messages: Any, *, key: str | None = None, ttl: Any = None, **_: Any
    ) -> CallRecord:
        batch = hash_messages(messages, hasher)
        return describe_append(session_id, batch, key=key, ttl_s=ttl_s(ttl))

    def add_entries(
        session_id: str, values: Any, *, key: str | None = None, ttl: Any = None, **_: Any
    ) -> CallRecord:
        # A history shows messages alone.
        said = [value for value in values if isinstance(value, ChatMessage)]
        return describe_append(session_id, hash_messages(said, hasher), key=key, ttl_s=ttl_s(ttl))

    def save_context(
        session_id: str,
        human_msg: str,
        ai_msg: str,
        *,
        key: str | None = None,
        ttl: Any = None,
        **_: Any,
    ) -> CallRecord:
        turn = hash_turn(human_msg, ai_msg, hasher)
        return describe_append(session_id, turn, key=key, ttl_s=ttl_s(ttl))

    described: dict[str, MethodSpec] = {
        "add_message": MethodSpec(add_message, record_position),
        "add_messages": MethodSpec(add_messages, record_position, takes_batch=True),
        "add_entries": MethodSpec(add_entries, takes_batch=True),
        "save_context": MethodSpec(save_context, record_position),
        "get_history": MethodSpec(_get_history, record_messages),
        "load_memory": MethodSpec(
            lambda session_id: CallRecord("read", session_id, turns=True), record_turns
        ),
        "trim": MethodSpec(_unless_dry_run(_trim_last)),
        "clear": MethodSpec(_unless_dry_run(describe_change("clear"))),
        "clear_all": MethodSpec(lambda: CallRecord("clear", "", every=True)),
        "undo": MethodSpec(_unless_dry_run(describe_change("undo"))),
        "redo": MethodSpec(_unless_dry_run(_redo)),
        "forget": MethodSpec(describe_change("clear")),
        "repair": MethodSpec(_repair),
        "save_snapshot": MethodSpec(describe_change("snapshot"), record_snapshot_id),
        "rollback_to_snapshot": MethodSpec(_unless_dry_run(describe_rollback)),
        "fork": MethodSpec(describe_fork),
        "delete_snapshot": MethodSpec(_delete_snapshot),
        "import_": MethodSpec(lambda *_, **__: CallRecord(CALL, "", every=True)),
        "vacuum": MethodSpec(describe_session_call),
    }
    return {
        name: replace(described.get(name) or _describe_verb(verb), removes=verb.removes)
        for name, verb in VERBS.items()
    }


def _describe_verb(verb: StoreVerb) -> MethodSpec:
    """Describe a verb that the table above does not have, by the operation that commits it."""
    if verb.commits in (ShowStage, Erase):
        # Sessions appear or go, and the trace has no word for it: nothing is known of any.
        return MethodSpec(lambda *_, **__: CallRecord(CALL, "", every=True, changes=True))
    _, *parameters = inspect.signature(getattr(MemoryStore, verb.name)).parameters
    if parameters[:1] != ["session_id"]:
        return MethodSpec(describe_store_call)
    return MethodSpec(_unless_dry_run(_hide_some) if verb.removes else describe_session_call)


def _hide_some(session_id: str, *_: Any, key: str | None = None, **__: Any) -> CallRecord:
    # The trace has no positions, so any message may be missing.
    return CallRecord("trim", session_id, keep=0, key=key, unsure=True)


def _redo(session_id: str, *_: Any, **__: Any) -> CallRecord:
    # Traces have no redo. Like an undo, it shows a state that was shown before.
    return CallRecord("undo", session_id, unsure=True)


def _delete_snapshot(session_id: str, snapshot_id: str) -> CallRecord:
    return CallRecord(CALL, session_id, snapshot=snapshot_id)


def _repair(session_id: str | None = None, *, dry_run: bool = False) -> CallRecord:
    if dry_run:
        return CallRecord(CALL, session_id or "")
    return CallRecord("trim", session_id or "", keep=0, every=session_id is None, unsure=True)
