"""The public store: each verb builds a plan and runs it on the backend."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TextIO, TypeVar

from pydantic import JsonValue

from indelible.core.audit import READS_MAX, Audit
from indelible.core.backend import AsyncBackend
from indelible.core.embedding import (
    add_vectors,
    embed_async,
    list_texts,
    try_embed_async,
)
from indelible.core.history import Entries, History
from indelible.core.limits import UNDO_WINDOW_S
from indelible.core.operations import Draft
from indelible.core.plan import Plan, run_plan_async
from indelible.core.plans import (
    append,
    audit,
    embeddings,
    maintenance,
    memories,
    read,
    risks,
    search,
    search_request,
    sessions,
    snapshots,
    summaries,
    transfer,
    verification,
    view_changes,
)
from indelible.core.plans.append import Replay
from indelible.core.plans.maintenance import OnPage
from indelible.core.plans.memories import Collection
from indelible.core.plans.read import CountTokens, OnCorrupt
from indelible.core.plans.sessions import Progress
from indelible.core.plans.view_changes import Align
from indelible.core.settings import Settings
from indelible.errors import MemoryStoreError, UsageError
from indelible.model import (
    Absent,
    AuditLine,
    ChatMessage,
    Claims,
    CorruptEntry,
    ForgetReceipt,
    Hit,
    Kind,
    Memory,
    MemoryList,
    MemoryVersion,
    Never,
    Receipt,
    ReindexReport,
    RepairReport,
    Risk,
    SessionInfo,
    SessionList,
    Snapshot,
    SnapshotDiff,
    Source,
    StoredSummary,
    SummaryMatch,
    Timeline,
    ToolCallRecord,
    TransferReport,
    VacuumReport,
    Value,
    VerifyReport,
    ViewChange,
)

T = TypeVar("T")


class AsyncMemoryStore:
    """The sessions of one namespace, on one engine. Safe for concurrent use."""

    def __init__(self, backend: AsyncBackend, settings: Settings) -> None:
        self._backend = backend
        self._settings = settings

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on {self._settings.target or 'a backend'}>"

    async def _run(
        self, plan: Plan[T], *, found_in: Callable[[T], Iterable[str]] | None = None
    ) -> T:
        """Run a plan, and audit it if asked for.

        `found_in` returns the sessions that a search read; what it looked at does not count.
        """
        audited = self._settings.audit
        if audited is None:
            return await run_plan_async(plan, self._backend.perform)
        await self._note_reads(audited, least=READS_MAX)
        if found_in is None:
            return await run_plan_async(plan, audited.wrap(self._backend.perform))
        result = await run_plan_async(plan, self._backend.perform)
        audited.count_reads(found_in(result))
        return result

    async def _note_reads(self, audited: Audit, *, least: int) -> None:
        """Write the lines of reads, if so many are pending. No call fails because of them."""
        lines = audited.take_reads(least=least)
        try:
            while lines:
                line = lines.pop()
                try:
                    await self._backend.perform(line)
                except MemoryStoreError as error:
                    audited.note_failure(line, error)
        finally:
            # A call that was cancelled leaves them to the next one.
            audited.put_back(lines)

    async def _add(
        self,
        session_id: str,
        drafts: tuple[Draft, ...],
        key: str | None,
        expected: str | None,
        ttl: float | Never | None,
        replay: Replay,
    ) -> Receipt:
        plan = append.append_drafts(
            self._settings, session_id, drafts, key=key, expected=expected, ttl=ttl, replay=replay
        )
        return await self._run(plan)

    async def _add_values(
        self,
        session_id: str,
        values: list[Value],
        key: str | None,
        expected: str | None,
        ttl: float | Never | None,
        replay: Replay,
    ) -> Receipt:
        """Append values; the store's embedder computes the vectors that summaries lack."""
        drafts = append.build_entries(values)
        own = self._settings.embedder
        texts = [] if own is None else list_texts(values)
        if own is not None and texts:
            # A wrong argument is refused before the embedder is paid.
            append.check_append(
                session_id, drafts, key=key, expected=expected, ttl=ttl, replay=replay
            )
            values = add_vectors(own, values, await embed_async(own, texts))
            drafts = append.build_entries(values)
        return await self._add(session_id, drafts, key, expected, ttl, replay)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Wait for running calls and release the engine. Closing twice is fine."""
        try:
            if self._settings.audit is not None:
                await self._note_reads(self._settings.audit, least=1)
        finally:
            await self._backend.close()

    async def claims(self) -> Claims:
        """Return what this store promises on its engine, as the engine is configured right now."""
        return await self._backend.claims()

    async def identity(self) -> str | None:
        """Return an id of the place where this store keeps its data, whatever its URL.

        Two open stores with the same identity hold the same sessions. None if the engine has no
        identity. Do not store it: a restarted server has another one.
        """
        return await self._run(risks.read_identity())

    async def risks(
        self, *, sessions: bool = False, progress: Progress | None = None
    ) -> tuple[Risk, ...]:
        """Return what the engine can lose as it runs now, in which event, and what to change.

        With `sessions`, also report sessions of which more than half is unreachable and only takes
        space, among the first `RISK_SESSIONS_MAX`.
        """
        return await self._run(risks.find_risks(sessions=sessions, progress=progress))

    # Appending

    async def add_message(
        self,
        session_id: str,
        role: str,
        content: str | Sequence[Mapping[str, JsonValue]] | None,
        *,
        name: str | None = None,
        metadata: Mapping[str, JsonValue] | None = None,
        pinned: bool = False,
        key: str | None = None,
        expected: str | None = None,
        ttl: float | Never | None = None,
        replay: Replay = "visible",
    ) -> Receipt:
        """Append one message.

        Repeating an append with the same `key` writes nothing and returns the first receipt. If its
        entries were hidden since, it raises a `ConflictError` with reason "hidden", unless
        `replay="hidden-ok"`; see `Receipt.visible`. `expected` is a version from a read or a
        receipt: the append is refused if anyone appended or changed the view since. `ttl` is in
        seconds; None is the store's default.
        """
        draft = append.build_message(role, content, name=name, metadata=metadata, pinned=pinned)
        return await self._add(session_id, (draft,), key, expected, ttl, replay)

    async def add_messages(
        self,
        session_id: str,
        messages: Iterable[ChatMessage | Mapping[str, Any]],
        *,
        key: str | None = None,
        expected: str | None = None,
        ttl: float | Never | None = None,
        replay: Replay = "visible",
    ) -> Receipt:
        """Append several messages as one batch: all or none, at consecutive positions."""
        drafts = append.build_messages(messages)
        return await self._add(session_id, drafts, key, expected, ttl, replay)

    async def add_entries(
        self,
        session_id: str,
        values: Iterable[Value],
        *,
        key: str | None = None,
        expected: str | None = None,
        ttl: float | Never | None = None,
        replay: Replay = "visible",
    ) -> Receipt:
        """Append messages, tool calls, tool results and summaries as one batch.

        Summaries without a vector get one from the store's embedder, if there is one. If it fails,
        that is an `UnavailableError`, and nothing is written.
        """
        several = list(append.check_several(values))
        return await self._add_values(session_id, several, key, expected, ttl, replay)

    async def save_context(
        self,
        session_id: str,
        human_msg: str,
        ai_msg: str,
        *,
        key: str | None = None,
        expected: str | None = None,
        ttl: float | Never | None = None,
        replay: Replay = "visible",
    ) -> Receipt:
        """Append a turn, a user's message and the assistant's answer, as one batch."""
        drafts = (
            append.build_message("user", human_msg),
            append.build_message("assistant", ai_msg),
        )
        return await self._add(session_id, drafts, key, expected, ttl, replay)

    async def add_tool_call(
        self,
        session_id: str,
        call_id: str,
        name: str,
        arguments: JsonValue = None,
        *,
        metadata: Mapping[str, JsonValue] | None = None,
        key: str | None = None,
        expected: str | None = None,
        ttl: float | Never | None = None,
        replay: Replay = "visible",
    ) -> Receipt:
        """Append a tool call, under the id that the model gave it."""
        draft = append.build_tool_call(call_id, name, arguments, metadata)
        return await self._add(session_id, (draft,), key, expected, ttl, replay)

    async def add_tool_result(
        self,
        session_id: str,
        call_id: str,
        content: JsonValue,
        *,
        is_error: bool = False,
        metadata: Mapping[str, JsonValue] | None = None,
        key: str | None = None,
        expected: str | None = None,
        ttl: float | Never | None = None,
        replay: Replay = "visible",
    ) -> Receipt:
        """Append the result of the tool call with this id."""
        draft = append.build_tool_result(call_id, content, is_error, metadata)
        return await self._add(session_id, (draft,), key, expected, ttl, replay)

    async def add_summary(
        self,
        session_id: str,
        text: str,
        vector: Sequence[float] | None = None,
        *,
        covers: range | Iterable[int] | Iterable[tuple[int, int]] | None = None,
        embedder: str | None = None,
        metadata: Mapping[str, JsonValue] | None = None,
        key: str | None = None,
        expected: str | None = None,
        ttl: float | Never | None = None,
        replay: Replay = "visible",
    ) -> Receipt:
        """Append a summary of the positions in `covers`, with a vector for search.

        Without a vector, the store's embedder computes one, if there is one. If it fails, that is
        an `UnavailableError`, and nothing is written. `embedder` names what computed the vector:
        vectors of different embedders are never compared.
        """
        own = self._settings.embedder
        if own is not None and vector is None:
            summaries.refuse_other_embedder(own, embedder)
        embedder = embedder or (None if own is None else own.name)
        summary = append.build_summary(text, vector, covers, embedder, metadata)
        return await self._add_values(session_id, [summary], key, expected, ttl, replay)

    # Reading

    async def get_history(
        self,
        session_id: str,
        *,
        last: int | None = None,
        max_tokens: int | None = None,
        count_tokens: CountTokens | None = None,
        on_corrupt: OnCorrupt = "raise",
    ) -> History:
        """Return the visible messages in order: a list with `.version` and `.status`.

        `last` limits it to the newest messages, `max_tokens` to the newest that fit, estimated from
        stored bytes or counted by `count_tokens`. A session that does not exist is an empty list
        with status `new` or `expired`. A damaged message raises `CorruptEntryError`; with
        `on_corrupt="quarantine"` the others are returned, and `.corrupt` holds its bytes.
        """
        return await self._run(
            read.read_history(
                session_id,
                last=last,
                max_tokens=max_tokens,
                count_tokens=count_tokens,
                on_corrupt=on_corrupt,
            )
        )

    async def load_memory(self, session_id: str) -> list[dict[str, Any]]:
        """Return the conversation as turns: `[{"human": …, "ai": …}, …]`.

        A user's message opens a turn and the next assistant's message closes it. An unanswered user
        message has `"ai": None`, and an assistant's message that answers none has `"human": None`.
        Content blocks are returned as their text. Messages of other roles (system, tool) and tool
        results in any role are left out; `get_history` returns them.
        """
        return await self._run(read.read_turns(session_id))

    async def get_entries(
        self,
        session_id: str,
        *,
        kinds: Iterable[Kind | str] | None = None,
        last: int | None = None,
        limit: int | None = None,
        cursor: str | None = None,
        on_corrupt: OnCorrupt = "raise",
    ) -> Entries:
        """Return a page of the visible entries, in order, with positions and times.

        `.cursor` opens the next page of the same state as the first page, whatever was appended,
        trimmed or rolled back since; it is None on the last page. `last` returns the newest entries
        instead, up to a page.
        """
        return await self._run(
            read.read_entries(
                session_id,
                kinds=kinds,
                last=last,
                limit=limit,
                cursor=cursor,
                on_corrupt=on_corrupt,
            )
        )

    async def get_tool_calls(self, session_id: str) -> list[ToolCallRecord]:
        """Return the tool calls with their results, from tool entries and from messages.

        A call that has no result is `dangling`; a result that has no call is an `orphan`.
        """
        return await self._run(read.read_tool_calls(session_id))

    async def get_summaries(self, session_id: str) -> list[StoredSummary]:
        """Return the visible summaries, in order."""
        return await self._run(summaries.read_summaries(session_id))

    async def search_summaries(
        self,
        session_id: str,
        query: Sequence[float] | str,
        k: int = 5,
        *,
        embedder: str | None = None,
    ) -> list[SummaryMatch]:
        """Return the `k` visible summaries nearest to a vector, or to a text with an embedder.

        Similarity is the exact cosine. Only vectors of the same embedder and dimension are
        compared; if there are summaries but none of that kind, it raises a `UsageError`.
        """
        own = self._settings.embedder
        embedder = embedder or (None if own is None else own.name)
        if isinstance(query, str):
            own = summaries.check_text_search(own, session_id, k=k, embedder=embedder)
            (query,) = await embed_async(own, [query], query=True)
        return await self._run(
            summaries.search_summaries(session_id, query, k=k, embedder=embedder),
            found_in=lambda _: [session_id],
        )

    async def search(
        self,
        query: str | Sequence[float] | tuple[str, Sequence[float]],
        *,
        sessions: Iterable[str] | None = None,
        under: Collection | None = None,
        kinds: Iterable[Kind | str] | None = None,
        where: Mapping[str, Any] | None = None,
        k: int = 10,
        offset: int = 0,
        around: int = 0,
        as_of: str | None = None,
    ) -> list[Hit]:
        """Return the visible entries that fit a query best: text, a vector, or a pair of both.

        It looks at the whole store, at some `sessions`, or at those `under` a collection: that one
        and those whose labels begin with its labels. `where` filters by `session_id`, `kind`,
        `role`, `name`, `id`, `written_at` and paths in `metadata` and `value`, before the limit.
        `as_of` is a snapshot of one session. With `around`, a message has so many neighbours on
        either side. `kinds` are "message", "summary" and "memory", or some of them. With an
        embedder, text is compared by its vector too; if the embedder fails, a warning in the log
        says so, and hits have no rank by "vector".
        """
        request = search_request.parse_request(
            query,
            sessions=sessions,
            under=under,
            kinds=kinds,
            where=where,
            k=k,
            offset=offset,
            around=around,
            as_of=as_of,
        )
        own = self._settings.embedder
        if own is not None:
            if request.vector is None and request.text is not None:
                vector = await try_embed_async(own, request.text, query=True)
                request = request._replace(vector=vector)
            request = request._replace(embedder=own.name)
        return await self._run(
            search.search(request), found_in=lambda hits: {hit.session_id for hit in hits}
        )

    # Memories. A collection is a session: its id, or a tuple of labels.

    async def remember(
        self,
        collection: Collection,
        text: str | None = None,
        *,
        id: str | None = None,  # noqa: A002 (what it is called everywhere)
        value: JsonValue = None,
        metadata: Mapping[str, JsonValue] | None = None,
        vector: Sequence[float] | None = None,
        source: Source | Receipt | str | tuple[str, Any] | None = None,
        key: str | None = None,
        expected: int | Absent | None = None,
        ttl: float | Never | None = None,
    ) -> Receipt:
        """Store a memory, or a new version of the one with this id.

        Without an id, the receipt's key is its id. `source` says where it comes from: a session and
        positions, or the receipt of an append. `expected` is the position of the version that this
        one replaces, or `ABSENT`; if another one is the newest that is visible, that is a
        `ConflictError`. `ttl` is in seconds. Without a vector, the store's embedder computes one of
        the text; if it fails, the memory is stored without, until `embed_missing`.
        """
        memory = memories.parse_memory(
            self._settings,
            collection,
            text,
            memory_id=id,
            value=value,
            metadata=metadata,
            vector=vector,
            source=source,
            key=key,
            expected=expected,
            ttl=ttl,
        )
        own = self._settings.embedder
        if own is not None and vector is None and text is not None and embeddings.has_text(text):
            memory = memory.add_vector(await try_embed_async(own, text), own.name)
        return await self._run(memories.remember(self._settings, memory))

    async def embed_missing(self, collection: Collection | None = None) -> int:
        """Give memories the vector that they lack, in one collection or in all; return how many.

        Those lack one that were stored while the embedder failed, without an embedder, or with
        another one. Each becomes a new version with the same content and the same time to live,
        unless somebody has replaced it meanwhile. If the embedder fails, that is an
        `UnavailableError`; what was completed stays, and the next call continues.
        """
        own = self._settings.embedder
        if own is None:
            raise UsageError("to embed memories, open the store with embedder=…")
        completed = 0
        for name in await self._run(embeddings.list_collections(collection)):
            cursor: str | None = None
            while True:
                found = await self._run(embeddings.find_missing(name, own.name, cursor))
                texts = list(dict.fromkeys(each.text for each in found if each.text is not None))
                vectors = dict(zip(texts, await embed_async(own, texts), strict=True))
                completed += await self._run(
                    embeddings.complete_memories(self._settings, found, own.name, vectors)
                )
                cursor = found.cursor
                if cursor is None:
                    break
        return completed

    async def get_memory(self, collection: Collection, id: str) -> Memory | None:  # noqa: A002
        """Return a memory; None if it is not there, was retracted, or has expired."""
        return await self._run(memories.get_memory(collection, id))

    async def list_memories(
        self,
        collection: Collection,
        *,
        where: Mapping[str, Any] | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> MemoryList:
        """Return a page of the memories of a collection, by id.

        `where` filters by `id`, `text`, `written_at`, `expires_at`, and by paths such as
        `metadata.topic` and `value.city`, as in `list_sessions`. `.cursor` opens the next page.
        """
        return await self._run(
            memories.list_memories(collection, where=where, limit=limit, cursor=cursor)
        )

    async def memory_history(self, collection: Collection, id: str) -> list[MemoryVersion]:  # noqa: A002
        """Return every version of a memory, oldest first, each with what removed it and when."""
        return await self._run(memories.read_memory_history(collection, id))

    async def retract(
        self,
        collection: Collection,
        id: str,  # noqa: A002
        *,
        key: str | None = None,
        expected: int | None = None,
    ) -> Receipt:
        """Take a memory back: it is not found any more. Its versions stay in the history.

        Without a key, nothing is written if it is not there; the receipt then has no positions.
        With `expected`, the position of a version, a memory that was changed since is a
        `ConflictError`.
        """
        return await self._run(
            memories.retract(self._settings, collection, id, key=key, expected=expected)
        )

    async def refresh_ttl(self, collection: Collection, ids: Iterable[str]) -> list[Memory]:
        """Begin the time to live of memories again. Returns those that are there."""
        return await self._run(memories.refresh_ttl(self._settings, collection, ids))

    async def compact_memories(self, collection: Collection, *, keep: int) -> ViewChange:
        """Hide all but the newest `keep` versions of each memory.

        A vacuum frees them when they can no longer be brought back by an undo or a snapshot.
        """
        return await self._run(memories.compact_memories(self._settings, collection, keep=keep))

    async def erase_memory(self, collection: Collection, id: str) -> ForgetReceipt:  # noqa: A002
        """Erase every version of a memory for good, also from snapshots and from the history.

        Their positions stay, without a content. The receipt names forks of the collection, which
        keep theirs, and places where its bytes may still be. If it is `pending`, erasing it again
        later clears some of these places. The key of an append stays, to recognise a retry.
        """
        return await self._run(memories.erase_memory(collection, id))

    # Changing the view. With `dry_run`, a verb returns what it would change, and changes nothing.

    async def trim(
        self,
        session_id: str,
        *,
        keep_last: int | None = None,
        max_tokens: int | None = None,
        before: int | None = None,
        count_tokens: CountTokens | None = None,
        align: Align = "user",
        dry_run: bool = False,
        key: str | None = None,
        expected: str | None = None,
    ) -> ViewChange:
        """Hide the oldest entries: keep the last messages, a token budget, or all from a position.

        The conversation stays valid: a tool call and its results are kept or hidden together, and
        pinned and system messages, summaries and unanswered calls are kept. If it would begin in
        the middle of a turn, the user's message that opened the turn is kept, too; not with
        `align=None`. `dropped` lists the hidden positions. Nothing is deleted, and `undo` brings
        them back.
        """
        return await self._run(
            view_changes.trim(
                self._settings,
                session_id,
                keep_last=keep_last,
                max_tokens=max_tokens,
                before=before,
                count_tokens=count_tokens,
                align=align,
                dry_run=dry_run,
                key=key,
                expected=expected,
            )
        )

    async def hide(
        self,
        session_id: str,
        positions: Iterable[int],
        *,
        dry_run: bool = False,
        key: str | None = None,
        expected: str | None = None,
    ) -> ViewChange:
        """Hide entries by position. Nothing is deleted, and `undo` brings them back.

        Positions that are not visible are ignored. Unlike `trim`, it may separate a tool call from
        its result.
        """
        return await self._run(
            view_changes.hide(
                self._settings, session_id, positions, dry_run=dry_run, key=key, expected=expected
            )
        )

    async def clear(
        self,
        session_id: str,
        *,
        dry_run: bool = False,
        key: str | None = None,
        expected: str | None = None,
    ) -> ViewChange:
        """Hide all entries of a session. Snapshots stay, and `undo` brings the entries back."""
        return await self._run(
            view_changes.clear(
                self._settings, session_id, dry_run=dry_run, key=key, expected=expected
            )
        )

    async def clear_all(self) -> int:
        """Clear every session of the namespace; return how many had visible entries."""
        return await self._run(view_changes.clear_all(self._settings))

    async def undo(
        self,
        session_id: str,
        *,
        dry_run: bool = False,
        key: str | None = None,
        expected: str | None = None,
    ) -> ViewChange:
        """Undo the newest trim, hide, clear or rollback that is not undone yet.

        Later appends stay visible. Calling it again undoes the change before; `redo` takes an undo
        back.
        """
        return await self._run(
            view_changes.reverse(
                self._settings, session_id, "undo", dry_run=dry_run, key=key, expected=expected
            )
        )

    async def redo(
        self,
        session_id: str,
        *,
        dry_run: bool = False,
        key: str | None = None,
        expected: str | None = None,
    ) -> ViewChange:
        """Redo what the newest undo took back, unless the view was changed otherwise since.

        Appends do not stand in the way, and stay visible. Calling it again redoes the undo before.
        """
        return await self._run(
            view_changes.reverse(
                self._settings, session_id, "redo", dry_run=dry_run, key=key, expected=expected
            )
        )

    # Snapshots

    async def save_snapshot(
        self, session_id: str, *, label: str | None = None, expected: str | None = None
    ) -> Snapshot:
        """Save the current view of a session: messages, tool entries and summaries.

        A session that is no longer at the `expected` version is a `ConflictError`.
        """
        return await self._run(
            snapshots.save_snapshot(self._settings, session_id, label=label, expected=expected)
        )

    async def list_snapshots(self, session_id: str) -> list[Snapshot]:
        """Return the snapshots of a session, oldest first."""
        return await self._run(snapshots.list_snapshots(session_id))

    async def diff_snapshots(
        self, session_id: str, first: str, second: str | None = None
    ) -> SnapshotDiff:
        """Return the entries that the second snapshot has and the first lacks, and vice versa.

        Without a second one, the first is compared with the current view.
        """
        return await self._run(snapshots.diff_snapshots(session_id, first, second))

    async def delete_snapshot(self, session_id: str, snapshot_id: str) -> None:
        """Delete one snapshot. The session and the other snapshots are unchanged."""
        return await self._run(snapshots.delete_snapshot(session_id, snapshot_id))

    async def rollback_to_snapshot(
        self,
        session_id: str,
        snapshot_id: str,
        *,
        dry_run: bool = False,
        key: str | None = None,
        expected: str | None = None,
    ) -> ViewChange:
        """Restore the view that a snapshot saved. All snapshots stay, earlier and later ones.

        Here and wherever a snapshot is named, `snapshot_id` is its id, its label, at least four
        characters at the beginning of its id, or `"latest"`.
        """
        return await self._run(
            view_changes.rollback(
                self._settings,
                session_id,
                snapshot_id,
                dry_run=dry_run,
                key=key,
                expected=expected,
            )
        )

    async def fork(
        self,
        session_id: str,
        new_session_id: str,
        *,
        at: str | None = None,
        ttl: float | Never | None = None,
        expected: str | None = None,
    ) -> SessionInfo:
        """Copy the visible entries, or those of the snapshot `at`, into a new session.

        The copy appears as a whole or not at all. An existing target is a `ConflictError`, so is
        a session that is no longer at the `expected` version.
        """
        return await self._run(
            snapshots.fork(
                self._settings, session_id, new_session_id, at=at, ttl=ttl, expected=expected
            )
        )

    # Sessions

    async def session(self, session_id: str) -> SessionInfo:
        """Return the status of a session, its version, counts and metadata."""
        return await self._run(sessions.read_session(session_id))

    async def set_metadata(
        self,
        session_id: str,
        metadata: Mapping[str, JsonValue],
        *,
        expected: str | None = None,
    ) -> SessionInfo:
        """Replace the metadata of a session. A session that does not exist is created."""
        return await self._run(
            sessions.set_metadata(self._settings, session_id, metadata, expected=expected)
        )

    async def list_sessions(
        self,
        *,
        prefix: str = "",
        where: Mapping[str, Any] | None = None,
        order: str | None = None,
        cursor: str | None = None,
        limit: int | None = None,
        expired: bool = False,
        scan_max: int | None = None,
    ) -> SessionList:
        """Return a page of active sessions without their entries; `.cursor` opens the next page.

        `where` filters by fields, such as `{"metadata.team": "support"}`, with the operators `$eq`,
        `$ne`, `$gt`, `$gte`, `$lt`, `$lte`, `$in` and `$exists`. `order` is "id", "created" or
        "last_activity", with "-" before it for descending; without it, they come in any order, and
        on Redis one may come again on a later page if sessions were added in between. With
        `expired`, or if `where` names a status, also expired sessions that are still known, and
        unfinished copies. `.ids` has their ids alone.

        A filter that few sessions match takes as long as reading them all. With `scan_max`, a page
        ends after about so many sessions, and may be short or empty although `.cursor` continues.
        """
        return await self._run(
            sessions.list_sessions(
                prefix=prefix,
                where=where,
                order=order,
                cursor=cursor,
                limit=limit,
                expired=expired,
                scan_max=scan_max,
            )
        )

    # Maintenance

    async def timeline(
        self,
        session_id: str,
        *,
        last: int | None = None,
        before: int | None = None,
        on_page: OnPage | None = None,
    ) -> Timeline:
        """Return all entries of a session, visible or not, with its snapshots and view changes.

        `last` returns only the newest entries, `before` only those before a position. `on_page` is
        for long sessions: it is called with a `Timeline` for each page of entries as soon as it was
        read, at least once, and all pages show the same state. The result then has no entries.
        """
        return await self._run(
            maintenance.read_timeline(session_id, last=last, before=before, on_page=on_page)
        )

    async def verify(
        self,
        session_id: str | None = None,
        *,
        head: str | None = None,
        progress: Progress | None = None,
    ) -> VerifyReport:
        """Check one session or all: checksums, positions, views, snapshots, journal, the engine.

        A tool call without a result is a warning. In a store that is opened with `audit`, the lines
        of each audit are checked, too. `head` is the hash of a line of the session: no line up to
        it was changed, removed or reordered. Nothing is changed.
        """
        plan = verification.verify(self._settings, session_id, head=head, progress=progress)
        return await self._run(plan)

    async def audit_log(self, session_id: str, *, last: int | None = None) -> list[AuditLine]:
        """Return the audit of a session, or its newest lines, oldest first: who changed what, when.

        It is there also if the session was forgotten. Keep the hash of the newest line elsewhere:
        `verify(session_id, head=…)` then proves that no line up to it is missing or changed.
        """
        return await self._run(audit.read_audit_log(session_id, last=last))

    async def repair(self, session_id: str | None = None, *, dry_run: bool = False) -> RepairReport:
        """Hide damaged entries, keeping their bytes, and close dangling tool calls.

        A dangling call gets an error result, in the form in which the call was made. `undo` undoes
        the change of the view; `quarantined` returns the bytes.
        """
        return await self._run(verification.repair(self._settings, session_id, dry_run=dry_run))

    async def quarantined(self, session_id: str) -> list[CorruptEntry]:
        """Return what repair set aside: position, reason, and the original bytes."""
        return await self._run(verification.read_quarantine(session_id))

    async def export(
        self,
        target: str | os.PathLike[str] | TextIO,
        session_id: str | None = None,
        *,
        prefix: str = "",
        progress: Progress | None = None,
    ) -> TransferReport:
        """Write one session or all as lines of JSON: log, view, snapshots, journal, metadata.

        The output is streamed. A file appears under its name only when it is complete.
        """
        with transfer.open_output(target) as write:
            return await self._run(
                transfer.export(write, session_id, prefix=prefix, progress=progress)
            )

    async def import_(
        self,
        source: str | os.PathLike[str] | TextIO,
        *,
        progress: Progress | None = None,
    ) -> TransferReport:
        """Read sessions that `export` wrote, from any engine.

        Each session appears as a whole or not at all. An existing one is a `ConflictError`.
        """
        with transfer.open_input(source) as lines:
            return await self._run(transfer.import_(lines, progress=progress))

    async def vacuum(
        self,
        *,
        undo_window: float = UNDO_WINDOW_S,
        dry_run: bool = False,
        session_id: str | None = None,
        progress: Progress | None = None,
    ) -> VacuumReport:
        """Delete entries that no view, snapshot or undo can bring back.

        `undo_window` is in seconds: older changes cannot be undone afterwards. It goes through the
        sessions one by one, or through the one that is named. A damaged one of several is skipped.
        Any other error, and its `landed`, concern only the session at which it stopped: those
        before it are vacuumed.
        """
        return await self._run(
            maintenance.vacuum(
                session_id, undo_window=undo_window, dry_run=dry_run, progress=progress
            )
        )

    async def reindex(
        self, *, rebuild: bool = False, progress: Progress | None = None
    ) -> ReindexReport:
        """Add entries to the indexes of search that were written without them, in all namespaces.

        It may be interrupted, and goes on when it is called again. With `rebuild`, it begins with
        empty indexes, as after damage. Memory and Redis have none, and nothing to do.
        """
        return await self._run(maintenance.reindex(rebuild=rebuild, progress=progress))

    async def forget(self, session_id: str, *, expected: str | None = None) -> ForgetReceipt:
        """Erase a session for good: entries, vectors, snapshots, keys, journal, metadata.

        The receipt names its forks, which stay, and places where its bytes may still be. If it is
        `pending`, calling `forget` again later clears some of these places. A session that is no
        longer at the `expected` version is a `ConflictError`; a damaged one can then not be erased.
        """
        return await self._run(maintenance.forget(session_id, expected=expected))
