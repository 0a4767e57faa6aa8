"""The public store: each verb builds a plan and runs it on the backend."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TextIO, TypeVar

from pydantic import JsonValue

from indelible.core.backend import Backend
from indelible.core.limits import UNDO_WINDOW_S
from indelible.core.operations import Draft
from indelible.core.plan import Plan, run_plan
from indelible.core.plans import (
    append,
    maintenance,
    read,
    risks,
    search,
    sessions,
    snapshots,
    tool_calls,
    transfer,
    verification,
    view_changes,
)
from indelible.core.plans.append import Replay
from indelible.core.plans.read import CountTokens, OnCorrupt
from indelible.core.plans.verification import Progress
from indelible.core.settings import Settings
from indelible.model import (
    ChatMessage,
    Claims,
    CorruptEntry,
    Entries,
    ForgetReceipt,
    History,
    Kind,
    Never,
    Receipt,
    RepairReport,
    Risk,
    SessionIds,
    SessionInfo,
    Snapshot,
    SnapshotDiff,
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


class MemoryStore:
    """The sessions of one namespace, on one engine. Safe for concurrent use."""

    def __init__(self, backend: Backend, settings: Settings) -> None:
        self._backend = backend
        self._settings = settings

    def _run(self, plan: Plan[T]) -> T:
        return run_plan(plan, self._backend.perform)

    def _add(
        self,
        session_id: str,
        drafts: tuple[Draft, ...],
        key: str | None,
        expected: str | None,
        ttl: float | Never | None,
        replay: Replay,
    ) -> Receipt:
        plan = append.add(
            self._settings, session_id, drafts, key=key, expected=expected, ttl=ttl, replay=replay
        )
        return self._run(plan)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Finish what is running and let go of the engine. Closing again is fine."""
        self._backend.close()

    def claims(self) -> Claims:
        """What this store promises on the engine as it is configured right now."""
        return self._backend.claims()

    def identity(self) -> str | None:
        """What tells the place of this store from every other, however it was named.

        Two stores that are open at once and say the same hold the same sessions. None where the
        engine does not say. It is not for keeping: a server that is restarted has another one.
        """
        return self._run(risks.identity())

    def risks(
        self, *, sessions: bool = False, progress: Progress | None = None
    ) -> tuple[Risk, ...]:
        """What the engine, as it runs right now, may lose, in which event, and what to change.

        With `sessions`, also those of which more than half is out of reach and only takes space, of
        the first `RISK_SESSIONS_MAX`.
        """
        return self._run(risks.risks(sessions=sessions, progress=progress))

    # Adding

    def add_message(
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

        The same `key` again is the same append: the first receipt comes back and nothing is written
        twice. If its entries were hidden since, that is a `ConflictError` with reason "hidden",
        unless `replay="hidden-ok"`; see `Receipt.visible`. With `expected`, a version from a read
        or a receipt, the append is refused if anyone appended or changed the view since. `ttl` is
        in seconds; None is the store's default.
        """
        draft = append.message(role, content, name=name, metadata=metadata, pinned=pinned)
        return self._add(session_id, (draft,), key, expected, ttl, replay)

    def add_messages(
        self,
        session_id: str,
        messages: Iterable[ChatMessage | Mapping[str, Any]],
        *,
        key: str | None = None,
        expected: str | None = None,
        ttl: float | Never | None = None,
        replay: Replay = "visible",
    ) -> Receipt:
        """Append several messages as one batch: all or none, with nothing of others in between."""
        drafts = append.messages(messages)
        return self._add(session_id, drafts, key, expected, ttl, replay)

    def add_entries(
        self,
        session_id: str,
        values: Iterable[Value],
        *,
        key: str | None = None,
        expected: str | None = None,
        ttl: float | Never | None = None,
        replay: Replay = "visible",
    ) -> Receipt:
        """Append messages, tool calls, results and summaries in any mixture, as one batch."""
        drafts = append.values(values)
        return self._add(session_id, drafts, key, expected, ttl, replay)

    def save_context(
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
        """Append a turn, what the human said and what the AI answered, as one batch."""
        drafts = (append.message("user", human_msg), append.message("assistant", ai_msg))
        return self._add(session_id, drafts, key, expected, ttl, replay)

    def add_tool_call(
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
        """Append the record of a tool call, under the id that the model gave it."""
        draft = append.tool_call(call_id, name, arguments, metadata)
        return self._add(session_id, (draft,), key, expected, ttl, replay)

    def add_tool_result(
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
        """Append what a tool answered to the call of this id."""
        draft = append.tool_result(call_id, content, is_error, metadata)
        return self._add(session_id, (draft,), key, expected, ttl, replay)

    def add_summary(
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
        """Append a summary of the positions in `covers`, with the vector that finds it again.

        Without a vector, the store's embedder makes one, if it was opened with one. `embedder`
        names what made the vector: vectors of two embedders are never compared.
        """
        draft = append.summary(self._settings, text, vector, covers, embedder, metadata)
        return self._add(session_id, (draft,), key, expected, ttl, replay)

    # Reading

    def get_history(
        self,
        session_id: str,
        *,
        last: int | None = None,
        max_tokens: int | None = None,
        count_tokens: CountTokens | None = None,
        on_corrupt: OnCorrupt = "raise",
    ) -> History:
        """The messages that a session shows, in order: a list with `.version` and `.status`.

        `last` gives the newest messages, literally; `max_tokens` the newest that fit, estimated
        from stored bytes or counted by `count_tokens`. A session that is not there is an empty list
        with status `new`, or `expired`. A message that cannot be read raises `CorruptEntryError`;
        with `on_corrupt="quarantine"` its neighbours come back and `.corrupt` holds its bytes.
        """
        return self._run(
            read.history(
                session_id,
                last=last,
                max_tokens=max_tokens,
                count_tokens=count_tokens,
                on_corrupt=on_corrupt,
            )
        )

    def load_memory(self, session_id: str) -> list[dict[str, Any]]:
        """The conversation as turns: `[{"human": …, "ai": …}, …]`.

        A user's message opens a turn and the next assistant's message closes it. What has no
        partner is not dropped: an unanswered user message has `"ai": None`, and an assistant's
        message that answers no user message has `"human": None`. Of content blocks, the text is
        given. Messages of other roles (system, tool), and results of tools in any role, belong to
        no turn and are left out; `get_history` has them.
        """
        return self._run(read.memory(session_id))

    def get_entries(
        self,
        session_id: str,
        *,
        kinds: Iterable[Kind | str] | None = None,
        last: int | None = None,
        limit: int | None = None,
        cursor: str | None = None,
        on_corrupt: OnCorrupt = "raise",
    ) -> Entries:
        """A page of everything that a session shows, in order, with positions and times.

        `.cursor` opens the next page of the very state that the first page saw, whatever was
        appended, trimmed or rolled back since; it is None on the last page. `last` gives the newest
        entries instead, up to a page.
        """
        return self._run(
            read.entries(
                session_id,
                kinds=kinds,
                last=last,
                limit=limit,
                cursor=cursor,
                on_corrupt=on_corrupt,
            )
        )

    def get_tool_calls(self, session_id: str) -> list[ToolCallRecord]:
        """Tool calls with their results, from tool entries and from message fields alike.

        A call that has no result is `dangling`; a result that has no call is an `orphan`.
        """
        return self._run(tool_calls.tool_calls(session_id))

    def get_summaries(self, session_id: str) -> list[StoredSummary]:
        """The summaries that a session shows, in order."""
        return self._run(read.summaries(session_id))

    def search_summaries(
        self,
        session_id: str,
        query: Sequence[float] | str,
        k: int = 5,
        *,
        embedder: str | None = None,
    ) -> list[SummaryMatch]:
        """The `k` summaries nearest to a vector, or to a text if the store has an embedder.

        Exact cosine, over what the session shows: a summary that was rolled back or trimmed away is
        not found. Only vectors of the same embedder and dimension are compared; if there are
        summaries but none of them is such, it is a `UsageError`.
        """
        return self._run(
            search.search_summaries(self._settings, session_id, query, k=k, embedder=embedder)
        )

    # Changing what shows

    def trim(
        self,
        session_id: str,
        *,
        keep_last: int | None = None,
        max_tokens: int | None = None,
        before: int | None = None,
        count_tokens: CountTokens | None = None,
        key: str | None = None,
        expected: str | None = None,
    ) -> ViewChange:
        """Let go of the front: keep the last messages, a budget of tokens, or all from a position.

        The conversation stays valid: a tool call and its results stay or go together, and pinned
        and system messages, summaries and unanswered calls stay. `dropped` lists what went; nothing
        is deleted, and `undo` brings it back.
        """
        return self._run(
            view_changes.trim(
                self._settings,
                session_id,
                keep_last=keep_last,
                max_tokens=max_tokens,
                before=before,
                count_tokens=count_tokens,
                key=key,
                expected=expected,
            )
        )

    def hide(
        self,
        session_id: str,
        positions: Iterable[int],
        *,
        key: str | None = None,
        expected: str | None = None,
    ) -> ViewChange:
        """Let go of certain entries, by position. Nothing is deleted, and `undo` shows them again.

        What a session does not show is passed over. A tool call may lose its result by this: it is
        for whoever took an entry back, while `trim` keeps a conversation valid.
        """
        plan = view_changes.hide(self._settings, session_id, positions, key=key, expected=expected)
        return self._run(plan)

    def clear(
        self, session_id: str, *, key: str | None = None, expected: str | None = None
    ) -> ViewChange:
        """Let go of everything that a session shows. Snapshots stay, and `undo` brings it back."""
        return self._run(view_changes.clear(self._settings, session_id, key=key, expected=expected))

    def clear_all(self) -> int:
        """Clear every session of the namespace; says how many showed anything."""
        return self._run(view_changes.clear_all(self._settings))

    def undo(
        self, session_id: str, *, key: str | None = None, expected: str | None = None
    ) -> ViewChange:
        """Take back the newest trim, hide, clear or rollback that is not yet undone.

        Appends that came later stay visible. Again goes one further back; there is no redo.
        """
        return self._run(view_changes.undo(self._settings, session_id, key=key, expected=expected))

    # Snapshots

    def save_snapshot(self, session_id: str, *, label: str | None = None) -> Snapshot:
        """Write down what a session shows, messages, tool entries and summaries alike."""
        return self._run(snapshots.save_snapshot(self._settings, session_id, label=label))

    def list_snapshots(self, session_id: str) -> list[Snapshot]:
        """The snapshots of a session, oldest first."""
        return self._run(snapshots.list_snapshots(session_id))

    def diff_snapshots(
        self, session_id: str, first: str, second: str | None = None
    ) -> SnapshotDiff:
        """What the second snapshot added to the first, and what it lacks.

        Without a second, the first is compared with what the session shows now.
        """
        return self._run(snapshots.diff_snapshots(session_id, first, second))

    def delete_snapshot(self, session_id: str, snapshot_id: str) -> None:
        """Forget one snapshot. The session and every other snapshot stay as they are."""
        return self._run(snapshots.delete_snapshot(session_id, snapshot_id))

    def rollback_to_snapshot(
        self,
        session_id: str,
        snapshot_id: str,
        *,
        key: str | None = None,
        expected: str | None = None,
    ) -> ViewChange:
        """Show exactly what the snapshot froze. Every snapshot stays, earlier and later ones."""
        return self._run(
            view_changes.rollback(
                self._settings, session_id, snapshot_id, key=key, expected=expected
            )
        )

    def fork(
        self,
        session_id: str,
        new_session_id: str,
        *,
        at: str | None = None,
        ttl: float | Never | None = None,
    ) -> SessionInfo:
        """Copy what a session shows, or what the snapshot `at` froze, into a new session.

        The copy appears at once or not at all. A target that exists is a `ConflictError`.
        """
        return self._run(snapshots.fork(self._settings, session_id, new_session_id, at=at, ttl=ttl))

    # Sessions

    def session(self, session_id: str) -> SessionInfo:
        """What a session is right now: new, active or expired, its version, counts and metadata."""
        return self._run(sessions.session(session_id))

    def set_metadata(
        self,
        session_id: str,
        metadata: Mapping[str, JsonValue],
        *,
        expected: str | None = None,
    ) -> SessionInfo:
        """Replace a session's metadata. A session that is not there begins with it."""
        return self._run(
            sessions.set_metadata(self._settings, session_id, metadata, expected=expected)
        )

    def list_sessions(
        self,
        *,
        prefix: str = "",
        cursor: str | None = None,
        limit: int | None = None,
        expired: bool = False,
    ) -> SessionIds:
        """A page of the ids of active sessions, in no promised order; `.cursor` opens the next.

        With `expired`, also of those that expired and are known to have, and of copies that were
        never finished; `session` tells them apart.
        """
        return self._run(
            sessions.list_sessions(prefix=prefix, cursor=cursor, limit=limit, expired=expired)
        )

    # Upkeep

    def timeline(self, session_id: str) -> Timeline:
        """All that a session's life holds: what shows, what does not, and how that came to be."""
        return self._run(maintenance.timeline(session_id))

    def verify(
        self, session_id: str | None = None, *, progress: Progress | None = None
    ) -> VerifyReport:
        """Check a session, or all: checksums, positions, views, snapshots, journal, the engine.

        A tool call without a result is a warning. Nothing is changed.
        """
        return self._run(verification.verify(session_id, progress=progress))

    def repair(self, session_id: str | None = None, *, dry_run: bool = False) -> RepairReport:
        """Take what cannot be read out of view, keeping its bytes, and close dangling tool calls.

        A dangling call gets an error result, in the form in which the call was made. `undo` takes
        back the change of the view; `quarantined` has the bytes.
        """
        return self._run(verification.repair(self._settings, session_id, dry_run=dry_run))

    def quarantined(self, session_id: str) -> list[CorruptEntry]:
        """What repair took out of view: position, reason, and the bytes as they were."""
        return self._run(verification.read_quarantined(session_id))

    def export(
        self,
        target: str | os.PathLike[str] | TextIO,
        session_id: str | None = None,
        *,
        prefix: str = "",
        progress: Progress | None = None,
    ) -> TransferReport:
        """Write a session, or all, as lines of JSON: log, view, snapshots, journal, metadata.

        It is streamed. A file gets its name when it is complete, not before.
        """
        with transfer.output(target, self._backend.owns) as write:
            return self._run(transfer.export(write, session_id, prefix=prefix, progress=progress))

    def import_(
        self,
        source: str | os.PathLike[str] | TextIO,
        *,
        progress: Progress | None = None,
    ) -> TransferReport:
        """Read sessions that `export` wrote, on whatever engine.

        Each appears when all of it is there. One that exists already is a `ConflictError`.
        """
        with transfer.input_lines(source) as lines:
            return self._run(transfer.import_(lines, progress=progress))

    def vacuum(
        self,
        *,
        undo_window: float = UNDO_WINDOW_S,
        dry_run: bool = False,
        session_id: str | None = None,
        progress: Progress | None = None,
    ) -> VacuumReport:
        """Remove entries that no view, snapshot, or change inside the undo window can bring back.

        `undo_window` is in seconds: older changes can no longer be undone afterwards.
        """
        return self._run(
            maintenance.vacuum(
                session_id, undo_window=undo_window, dry_run=dry_run, progress=progress
            )
        )

    def forget(self, session_id: str) -> ForgetReceipt:
        """Erase a session for good: entries, vectors, snapshots, keys, journal, metadata.

        The receipt names forks of it, which stay, and places where its bytes may still be. While it
        is `pending`, forgetting again clears them.
        """
        return self._run(maintenance.forget(session_id))
