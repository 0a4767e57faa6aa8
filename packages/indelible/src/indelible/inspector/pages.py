"""Reads the data of each page from the store, by its public verbs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from indelible.core.filters import parse_conditions
from indelible.errors import MemoryStoreError, SessionNotFoundError, UsageError
from indelible.inspector.artifacts import Report, Trace
from indelible.inspector.moments import (
    NOW,
    Moment,
    choose_page,
    compare,
    find_end,
    find_moment,
    list_moments,
    plan_reads,
)
from indelible.inspector.rows import PageRow, TextWriter, build_rows, show_as_of
from indelible.model import Status, StoredValue, Timeline, TimelineEntry, VerifyReport
from indelible.store_async import AsyncMemoryStore
from indelible.view import Extents, contains

Fields = Mapping[str, str]
Shown = dict[str, Any]

SESSIONS_PAGE: Final = 50
ENTRIES_PAGE: Final = 50
MEMORIES_PAGE: Final = 50
HITS_PAGE: Final = 20
# Newest lines of an audit.
AUDIT_PAGE: Final = 50
# Sessions that a filter looks at for one page; the page offers to continue after them.
SCAN_MAX: Final = 1000
# Entries that are read around a page: results of its calls, and calls of its results.
CONTEXT_ENTRIES: Final = 50
# The longest text on the page of one entry.
ENTRY_CHARS_MAX: Final = 200_000
# The longest query of a search.
WORDS_CHARS_MAX: Final = 500
ORDERS: Final = {
    "-last_activity": "latest activity",
    "-created": "newest",
    "created": "oldest",
    "id": "id",
    "": "any",
}
# Engines that would read every session to sort a page of them.
UNORDERED_ENGINES: Final = ("redis", "valkey")


@dataclass(kw_only=True, slots=True)
class Verification:
    """A run of `verify` in the background."""

    task: asyncio.Task[None]
    session: str = ""
    entries: int = 0
    report: VerifyReport | None = None
    error: str = ""


@dataclass(kw_only=True, slots=True)
class Pages:
    """Reads the data of the pages. Each method takes the fields of a query."""

    store: AsyncMemoryStore
    reports: Sequence[tuple[str, Report]] = ()
    traces: Sequence[tuple[str, Trace]] = ()
    verification: Verification | None = None

    async def sessions(self, fields: Fields) -> Shown:
        """List sessions, filtered and ordered."""
        prefix, condition = fields.get("prefix", ""), fields.get("where", "").strip()
        status, order = fields.get("status", ""), fields.get("order")
        if order is None:
            engine = (await self.store.claims()).engine
            order = "" if engine in UNORDERED_ENGINES else "-last_activity"
        since = fields.get("since", "")
        conditions = [condition] if condition else []
        conditions += [f"last_activity>={since}"] if since else []
        conditions += [f"status={status}"] if status else []
        where = parse_conditions(conditions)
        page = await self.store.list_sessions(
            prefix=prefix,
            where=where,
            order=order or None,
            cursor=fields.get("cursor") or None,
            limit=SESSIONS_PAGE,
            scan_max=SCAN_MAX if where else None,
        )
        chosen = {
            "prefix": prefix,
            "status": status,
            "where": condition,
            "since": since,
            "order": order,
        }
        return {
            "sessions": page,
            "cursor": page.cursor,
            "chosen": chosen,
            "is_filtered": any(value for name, value in chosen.items() if name != "order"),
            "is_first": not fields.get("cursor"),
            "page_size": SESSIONS_PAGE,
            "scan_max": SCAN_MAX,
            "orders": ORDERS,
            "statuses": [each.value for each in Status],
        }

    async def session(self, fields: Fields) -> Shown:
        """Read a session, now or at a moment: its newest entries, or those before a position."""
        session = get_field(fields, "id")
        head = await self._read_head(session, last=ENTRIES_PAGE + CONTEXT_ENTRIES)
        moments = list_moments(head)
        moment = find_moment(moments, fields.get("at", ""))
        before = min(parse_position(fields.get("before")) or moment.end, moment.end)
        rows = await self._read_rows(session, head, moment, before)
        return {
            "info": head.info,
            "timeline": head,
            "moments": moments,
            "moment": moment,
            "step": moments.index(moment),
            "history": [each for each in reversed(moments) if each.change or each.snapshot],
            "audit": (await self.store.audit_log(session, last=AUDIT_PAGE))[::-1],
            "is_now": moment.id == NOW,
            "is_live": moment.id == NOW and before == moment.end,
            "page": rows,
            "end": moment.end,
            "before": before,
        }

    async def session_news(self, fields: Fields) -> Shown | None:
        """Read what was appended after a position since a version; None if nothing was."""
        session, version = get_field(fields, "id"), fields.get("version", "")
        if (await self.store.session(session)).version == version:
            return None
        timeline = await self.store.timeline(session, last=ENTRIES_PAGE)
        after = parse_position(fields.get("after")) or 0
        newest = timeline.changes[0].key if timeline.changes else ""
        rows = build_rows(
            timeline.entries, first=after, changes=timeline.changes, snapshots=timeline.snapshots
        )
        return {
            "info": timeline.info,
            "rows": rows,
            "end": find_end(timeline),
            "newest_change": newest,
            # More entries may have been appended than a page holds.
            "is_stale": newest != fields.get("change", "")
            or any(each.entry.position > after for each in timeline.entries[:1]),
        }

    async def entry(self, fields: Fields) -> Shown:
        """Read one entry, whole, and as JSON."""
        session, position = (
            get_field(fields, "id"),
            parse_position(get_field(fields, "position")) or 0,
        )
        found = await self.store.timeline(
            session, last=2 * CONTEXT_ENTRIES, before=position + CONTEXT_ENTRIES
        )
        entries = [each for each in found.entries if each.entry.position == position]
        if not entries:
            raise SessionNotFoundError(
                f"session {session!r} has no entry {position}: a vacuum may have removed it",
                session=session,
            )
        writer = TextWriter(chars_max=ENTRY_CHARS_MAX)
        value = getattr(entries[0].entry, "value", None)
        (row,) = build_rows(
            # A value of a thread is shown alone here, without its step.
            entries if isinstance(value, StoredValue) else found.entries,
            first=position,
            end=position + 1,
            changes=found.changes,
            writer=writer,
        )
        raw = None if value is None else writer.write(value.model_dump(mode="json"))
        return {"info": found.info, "row": row, "raw": raw}

    async def diff(self, fields: Fields) -> Shown:
        """Compare two moments of a session."""
        session = get_field(fields, "id")
        head = await self._read_head(session)
        moments = list_moments(head)
        first = find_moment(moments, fields.get("from") or moments[0].id)
        second = find_moment(moments, fields.get("to", ""))
        found = compare(first, second)
        page = choose_page(found.all, parse_position(fields.get("before")), ENTRIES_PAGE)
        rows = build_rows(await read_extents(self.store, session, page), changes=head.changes)
        for row in rows:
            row.sign = "+" if contains(found.added, row.position, row.position + 1) else "-"
        return {
            "info": head.info,
            "moments": moments,
            "first": first,
            "second": second,
            "difference": found,
            "rows": rows,
            "older": page[0][0] if page and page[0][0] > found.all[0][0] else None,
        }

    async def memories(self, fields: Fields) -> Shown:
        """List the current memories of a collection."""
        session = get_field(fields, "id")
        condition = fields.get("where", "").strip()
        info = await self.store.session(session)
        page = await self.store.list_memories(
            session,
            where=parse_conditions([condition] if condition else []),
            limit=MEMORIES_PAGE,
            cursor=fields.get("cursor") or None,
        )
        return {
            "info": info,
            "memories": page,
            "cursor": page.cursor,
            "where": condition,
            "writer": TextWriter(),
        }

    async def memory(self, fields: Fields) -> Shown:
        """List all versions of a memory, newest first."""
        session, memory_id = get_field(fields, "id"), get_field(fields, "memory")
        info = await self.store.session(session)
        versions = await self.store.memory_history(session, memory_id)
        return {
            "info": info,
            "memory_id": memory_id,
            "versions": versions[::-1],
            "writer": TextWriter(),
        }

    async def search(self, fields: Fields) -> Shown:
        """Search the whole store, or a session."""
        words, session = fields.get("q", "").strip(), fields.get("session", "")
        if len(words) > WORDS_CHARS_MAX:
            raise UsageError(f"a search takes up to {WORDS_CHARS_MAX} characters")
        offset = parse_position(fields.get("offset")) or 0
        kind = fields.get("kind", "")
        found = []
        if words:
            found = await self.store.search(
                words,
                sessions=[session] if session else None,
                kinds=[kind] if kind else None,
                k=HITS_PAGE + 1,
                offset=offset,
            )
        return {
            "words": words,
            "in_session": session,
            "kind": kind,
            "hits": [
                (hit, build_rows([TimelineEntry(entry=hit.entry, visible=True)])[0])
                for hit in found[:HITS_PAGE]
            ],
            "more": offset + HITS_PAGE if len(found) > HITS_PAGE else None,
            "offset": offset,
        }

    async def health(self, fields: Fields) -> Shown:  # noqa: ARG002 (as all pages)
        """Read what the store promises and risks, and what a verification found."""
        return {
            "claims": await self.store.claims(),
            "risks": await self.store.risks(),
            "verification": self.verification,
            "reports": self.reports,
            "traces": self.traces,
        }

    async def health_progress(self, fields: Fields) -> Shown:  # noqa: ARG002 (as all pages)
        """Return the progress of a verification."""
        return {"verification": self.verification}

    async def start_verification(self, fields: Fields) -> str:  # noqa: ARG002 (as all pages)
        """Start to verify the store, unless that is running; return the page that shows it."""
        if self.verification is None or self.verification.task.done():
            self.verification = Verification(task=asyncio.create_task(self._verify()))
        return "/health"

    async def _verify(self) -> None:
        state = self.verification
        assert state is not None

        def tell(session: str, entries: int) -> None:
            state.session, state.entries = session, entries

        try:
            state.report = await self.store.verify(progress=tell)
        except MemoryStoreError as error:
            state.error = error.message

    async def _read_head(self, session: str, *, last: int = 1) -> Timeline:
        """Read the state of a session with its newest entries; raise if it does not exist."""
        head = await self.store.timeline(session, last=last)
        if head.info.status is Status.NEW:
            raise SessionNotFoundError(f"there is no session {session!r}", session=session)
        return head

    async def _read_rows(
        self, session: str, head: Timeline, moment: Moment, before: int
    ) -> RowPage:
        """Read a page of entries before a position, and build their rows."""
        found = head
        if before != find_end(head):
            found = await self.store.timeline(
                session, last=ENTRIES_PAGE + 2 * CONTEXT_ENTRIES, before=before + CONTEXT_ENTRIES
            )
        positions = [each.entry.position for each in found.entries]
        inside = [position for position in positions if position < before][-ENTRIES_PAGE:]
        first = inside[0] if inside else before
        entries = found.entries
        if moment.id != NOW:
            # Leave out results that were appended later.
            there = [each for each in entries if each.entry.position < moment.end]
            entries = tuple(show_as_of(there, moment.extents))
        is_start = not positions or first == positions[0]
        rows = build_rows(
            entries,
            first=0 if is_start else first,
            # Entries that were appended meanwhile are sent by `session_news`.
            end=before,
            changes=moment.changes,
            snapshots=head.snapshots,
        )
        return RowPage(
            rows=rows,
            older=None if is_start else first,
            newer=min(before + ENTRIES_PAGE, moment.end) if before < moment.end else None,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class RowPage:
    """Rows, and where the pages before and after them end; None if there is no such page."""

    rows: list[PageRow]
    older: int | None
    newer: int | None


async def read_extents(store: AsyncMemoryStore, session: str, page: Extents) -> list[TimelineEntry]:
    """Read the entries of extents, as visible; one call reads extents that are close together."""
    entries: list[TimelineEntry] = []
    for start, stop in plan_reads(page):
        found = await store.timeline(session, last=stop - start, before=stop)
        entries += [each for each in show_as_of(found.entries, page) if each.visible]
    return entries


def get_field(fields: Fields, name: str) -> str:
    """Return a field that the page needs."""
    if not fields.get(name):
        raise UsageError(f"the address has no {name}")
    return fields[name]


def parse_position(text: str | None) -> int | None:
    """Return a position that a field has; None if it is empty."""
    if not text:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > 12:
        raise UsageError("a position is a number")
    return int(text)
