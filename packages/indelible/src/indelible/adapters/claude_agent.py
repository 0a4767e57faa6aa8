"""indelible as a session store of the Claude Agent SDK.

store = IndelibleSessionStore(await indelible.open_async("agent.db"))
ClaudeAgentOptions(session_store=store)
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC
from typing import Any, Final, cast
from uuid import NAMESPACE_URL, uuid5

from indelible import ChatMessage, Entry, Snapshot, ViewChange
from indelible.adapters.conversations import (
    get_message,
    iter_session_ids,
    read_visible,
    retry,
)
from indelible.adapters.forms import (
    MessageParts,
    get_extra,
    get_form,
    keep_form,
    parse_parts,
    to_content,
    to_role,
)
from indelible.adapters.store_variants import Store, check_store, to_async
from indelible.core.extras import need_extra

with need_extra("claude-agent"):
    from claude_agent_sdk import (
        SessionKey,
        SessionListSubkeysKey,
        SessionStore,
        SessionStoreEntry,
        SessionStoreListEntry,
        SessionSummaryEntry,
        fold_session_summary,
    )

FRAMEWORK: Final = "claude_agent"
# Transcripts whose state is cached between appends; others are read again.
_REMEMBERED_MAX: Final = 64


@dataclass(slots=True)
class _TranscriptState:
    """A transcript as it was when it was last read or written."""

    version: str
    uuids: set[str]
    summary: dict[str, Any] | None


class IndelibleSessionStore(SessionStore):
    """Transcripts, each a session named `project/session` or `project/session/subpath`.

    An entry whose uuid is stored already is skipped; the rest of a batch is one append. The SDK's
    summary of a transcript is stored in the same append, so that they always match. `delete` erases
    a transcript permanently.
    """

    def __init__(self, store: Store) -> None:
        self._store = to_async(check_store(store))
        self._states: OrderedDict[str, _TranscriptState] = OrderedDict()

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Append the entries of a batch that are not stored yet."""
        if not entries:
            return
        session = build_session_id(key)

        async def attempt() -> _TranscriptState:
            known = self._states.pop(session, None) or await self._read(key)
            fresh = _find_new(entries, known.uuids)
            if not fresh:
                return known
            summary = _fold_summary(key, known.summary, fresh)
            batch = [_to_message(entry, None) for entry in fresh[:-1]]
            batch.append(_to_message(fresh[-1], summary))
            receipt = await self._store.add_messages(session, batch, expected=known.version)
            uuids = known.uuids.union(_list_uuids(fresh))
            return _TranscriptState(receipt.version, uuids, summary)

        self._states[session] = await retry(session, attempt)
        while len(self._states) > _REMEMBERED_MAX:
            self._states.popitem(last=False)

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Return all entries of a transcript, in order; None if there are none.

        Messages before the SDK's first entry become entries of the transcript, so that it continues
        a conversation of another framework. Later messages of others are left out.
        """
        return (
            _to_entries(key, (await read_visible(self._store, build_session_id(key))).entries)
            or None
        )

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """List the transcripts of a project, without those of subagents."""
        return [
            {"session_id": session_id, "mtime": _get_mtime(newest)}
            async for session_id, newest in self._iter_transcripts(project_key)
        ]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """List the SDK's summaries of the transcripts of a project."""
        return [
            {"session_id": session_id, "mtime": _get_mtime(newest), "data": summary}
            async for session_id, newest in self._iter_transcripts(project_key)
            if (summary := _get_summary(get_message(newest))) is not None
        ]

    async def delete(self, key: SessionKey) -> None:
        """Erase a transcript permanently; without a subpath, with those of its subagents."""
        session = build_session_id(key)
        if key.get("subpath") is None:
            # The session itself last, so that an interrupted deletion can be repeated.
            async for name in iter_session_ids(self._store, session + "/"):
                await self._forget(name)
        await self._forget(session)

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """List the subpaths of a session."""
        prefix = build_session_id(
            {"project_key": key["project_key"], "session_id": key["session_id"]}
        )
        return [
            _decode_part(name.removeprefix(prefix + "/"))
            async for name in iter_session_ids(self._store, prefix + "/")
            if await self._read_newest(name) is not None
        ]

    async def snapshot(self, key: SessionKey, label: str | None = None) -> Snapshot:
        """Save the current state of a transcript."""
        return await self._store.save_snapshot(build_session_id(key), label=label)

    async def rollback(self, key: SessionKey, snapshot_id: str) -> ViewChange:
        """Restore the state of a snapshot; the next resume begins there."""
        return await self._store.rollback_to_snapshot(build_session_id(key), snapshot_id)

    async def undo(self, key: SessionKey) -> ViewChange:
        """Undo the newest change of what a transcript shows; the next resume begins there."""
        return await self._store.undo(build_session_id(key))

    async def _read(self, key: SessionKey) -> _TranscriptState:
        shown = await read_visible(self._store, build_session_id(key))
        entries = _to_entries(key, shown.entries)
        summaries = filter(None, map(_get_summary, reversed(shown.messages)))
        return _TranscriptState(shown.version, set(_list_uuids(entries)), next(summaries, None))

    async def _forget(self, session: str) -> None:
        self._states.pop(session, None)
        await self._store.forget(session)

    async def _iter_transcripts(self, project_key: str) -> AsyncIterator[tuple[str, Entry]]:
        prefix = _encode_part(project_key) + "/"
        async for name in iter_session_ids(self._store, prefix):
            rest = name.removeprefix(prefix)
            if "/" not in rest and (newest := await self._read_newest(name)) is not None:
                yield _decode_part(rest), newest

    async def _read_newest(self, session: str) -> Entry | None:
        found = await self._store.get_entries(session, kinds=["message"], last=1)
        return found[0] if found else None


def build_session_id(key: SessionKey) -> str:
    """Build the id of the session that holds a transcript."""
    name = f"{_encode_part(key['project_key'])}/{_encode_part(key['session_id'])}"
    subpath = key.get("subpath")
    return name if subpath is None else f"{name}/{_encode_part(subpath)}"


def _encode_part(part: str) -> str:
    """Encode slashes, which separate the parts of a session id."""
    return part.replace("%", "%25").replace("/", "%2F")


def _decode_part(part: str) -> str:
    return part.replace("%2F", "/").replace("%25", "%")


def _find_new(entries: list[SessionStoreEntry], known: set[str]) -> list[SessionStoreEntry]:
    """Return the entries that are not stored yet; those without a uuid are always new."""
    seen = set(known)
    fresh = []
    for entry in entries:
        uuid = entry.get("uuid")
        if uuid is None or uuid not in seen:
            fresh.append(entry)
            seen.update(_list_uuids([entry]))
    return fresh


def _list_uuids(entries: list[SessionStoreEntry]) -> list[str]:
    return [uuid for entry in entries if (uuid := entry.get("uuid")) is not None]


def _fold_summary(
    key: SessionKey, before: dict[str, Any] | None, fresh: list[SessionStoreEntry]
) -> dict[str, Any] | None:
    """Update the SDK's summary with new entries; transcripts of subagents have none."""
    if key.get("subpath") is not None:
        return None
    previous: SessionSummaryEntry | None = None
    if before is not None:
        previous = {"session_id": key["session_id"], "mtime": 0, "data": before}
    return fold_session_summary(previous, key, fresh)["data"]


def _to_message(entry: SessionStoreEntry, summary: dict[str, Any] | None) -> ChatMessage:
    """Build the stored form of an entry; its `message`, if any, gives role and content."""
    rest: dict[str, Any] = dict(entry)
    message = rest.pop("message", None)
    if not isinstance(message, dict):
        return keep_form(FRAMEWORK, {}, {"role": "transcript"}, entry=dict(entry), summary=summary)
    understood = {
        "role": to_role(message.get("role"), "transcript"),
        "content": to_content(message.get("content")),
    }
    return keep_form(FRAMEWORK, message, understood, entry=rest, message=True, summary=summary)


def _to_entry(message: ChatMessage) -> SessionStoreEntry | None:
    stored = get_extra(FRAMEWORK, message)
    if stored is None:
        return None
    entry: dict[str, Any] = stored["entry"]
    if stored.get("message"):
        entry = entry | {"message": get_form(FRAMEWORK, message)}
    return cast("SessionStoreEntry", entry)


def _to_entries(key: SessionKey, shown: list[Entry]) -> list[SessionStoreEntry]:
    """Return the SDK's entries, after entries for the messages that others wrote before them."""
    messages = [get_message(entry) for entry in shown]
    own = [_to_entry(message) for message in messages]
    start = next((n for n, entry in enumerate(own) if entry is not None), len(own))
    before = _build_foreign_entries(key, shown[:start], parse_parts(messages[:start]))
    return before + [entry for entry in own if entry is not None]


def _build_foreign_entries(
    key: SessionKey, shown: list[Entry], said: list[MessageParts]
) -> list[SessionStoreEntry]:
    """Build entries for messages of others, each the child of the one before it."""
    found: list[dict[str, Any]] = []
    for entry, parts in zip(shown, said, strict=True):
        if parts.is_empty:
            continue
        # Stable between loads, so that later entries find their parents.
        uuid = str(uuid5(NAMESPACE_URL, f"{build_session_id(key)}/{entry.position}"))
        at = (parts.at or entry.written_at).astimezone(UTC)
        found.append(
            {
                "uuid": uuid,
                "parentUuid": found[-1]["uuid"] if found else None,
                "sessionId": key["session_id"],
                "timestamp": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                "isSidechain": False,
                **_build_body(parts),
            }
        )
    return cast("list[SessionStoreEntry]", found)


def _build_body(parts: MessageParts) -> dict[str, Any]:
    """Build an entry without its ids; a transcript has no system messages."""
    if parts.role in ("system", "developer"):
        return {"type": "system", "subtype": "informational", "content": parts.text}
    role = "assistant" if parts.role == "assistant" else "user"
    blocks: list[dict[str, Any]] = [
        {
            "type": "tool_result",
            "tool_use_id": result.call_id,
            "content": result.text,
            "is_error": result.is_error,
        }
        for result in parts.results
    ]
    blocks += parts.said
    blocks += [
        {
            "type": "tool_use",
            "id": call.id,
            "name": call.name,
            "input": call.arguments if call.as_object is None else call.as_object,
        }
        for call in parts.calls
    ]
    plain = role == "user" and not parts.results and not parts.calls
    return {"type": role, "message": {"role": role, "content": parts.content if plain else blocks}}


def _get_summary(message: ChatMessage) -> dict[str, Any] | None:
    return (get_extra(FRAMEWORK, message) or {}).get("summary")


def _get_mtime(newest: Entry) -> int:
    return round(newest.written_at.timestamp() * 1000)
